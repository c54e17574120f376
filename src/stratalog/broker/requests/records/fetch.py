"""Fetch: whole batches out, from where they lie, as soon as there are enough of them.

What is in memory is answered at once, with no task. What is not is read in a task. What is not
there yet is waited for: a commit in any of the partitions wakes the request, or its time does.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kio.schema.errors import ErrorCode

from stratalog.broker.context import BrokerContext
from stratalog.broker.wire import (
    FETCH_FIRST,
    FETCH_LAST,
    Connection,
    FetchRequest,
    Malformed,
    PartitionAnswer,
    PartitionFetch,
    RequestHeader,
    Slot,
    TopicAnswer,
    code_of,
    fetch_answer,
    read_fetch,
)
from stratalog.errors import StratalogError
from stratalog.partitions import Fetched, PartitionLog

FLEXIBLE_FROM: Final = 12
READ_COMMITTED: Final = 1
WAIT_MS_MAX: Final = 600_000
FULL_FETCH_EPOCHS: Final = (0, -1)
MAY_REPEAT_MAX: Final = 1000
"""A request for so few partitions is not searched for repeated ones."""


class Fetch:
    """Handles all requests to fetch."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.meter = context.meters.request("Fetch")

    def __call__(self, connection: Connection, frame: memoryview, header: RequestHeader) -> None:
        version = header.version
        if not FETCH_FIRST <= version <= FETCH_LAST:
            raise Malformed(f"Fetch v{version} is not served")
        at = header.payload_at(frame, flexible=version >= FLEXIBLE_FROM)
        request = read_fetch(version, frame, at)
        if _repeats(request):
            raise Malformed("a partition is asked for many times")
        slot = connection.slot(frame)
        _Fetching(self, connection, slot, header.correlation_id, request).begin()


def _repeats(request: FetchRequest) -> bool:
    """Each partition is looked at again at each commit: a request may not multiply them."""
    asked = sum(len(topic.partitions) for topic in request.topics)
    if asked <= MAY_REPEAT_MAX:
        return False
    places = {(topic.name, each.index) for topic in request.topics for each in topic.partitions}
    return len(places) < asked


class _Wanted:
    """One partition of a request, with its log if there is one."""

    __slots__ = ("answer", "asked", "log")

    def __init__(self, asked: PartitionFetch, log: PartitionLog | None) -> None:
        self.asked = asked
        self.log = log
        self.answer = PartitionAnswer(asked.index)


class _Fetching:
    """One request, until it is answered."""

    __slots__ = (
        "_answered",
        "_connection",
        "_correlation_id",
        "_ends",
        "_handler",
        "_is_last",
        "_is_reading",
        "_request",
        "_size",
        "_slot",
        "_timer",
        "_topics",
        "_urgent",
        "_wanted",
        "_woken",
    )

    def __init__(
        self,
        handler: Fetch,
        connection: Connection,
        slot: Slot,
        correlation_id: int,
        request: FetchRequest,
    ) -> None:
        self._handler = handler
        self._connection = connection
        self._slot = slot
        self._correlation_id = correlation_id
        self._request = request
        self._wanted: list[_Wanted] = []
        self._topics: list[TopicAnswer] = []
        self._ends: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._size = 0
        self._urgent = False
        """Something is to be said that is not records."""
        self._woken = self._is_last = self._answered = self._is_reading = False

    def begin(self) -> None:
        request = self._request
        if request.session_epoch not in FULL_FETCH_EPOCHS:
            self._answer(ErrorCode.fetch_session_id_not_found)
            return
        topics = self._handler.context.topics
        for topic in request.topics:
            known = topics.get(topic.name)
            wanted = [
                _Wanted(each, None if known is None else known.partition(each.index))
                for each in topic.partitions
            ]
            self._wanted.extend(wanted)
            self._topics.append(TopicAnswer(topic.name, [each.answer for each in wanted]))
        self._slot.on_end = self._give_up
        self._is_last = request.wait_ms <= 0 or not self._wanted
        self._look()

    def _look(self) -> None:
        """Gather what is there, and answer if it is enough."""
        self._woken = False
        if self._answered or self._is_reading:
            return
        self._size, self._urgent = 0, False
        for each in self._wanted:
            if not self._gather(each):
                self._is_reading = True
                # One at a time: what is read for a client waits for it in memory.
                self._connection.block(self._look_everywhere())
                return
        self._decide()

    async def _look_everywhere(self) -> None:
        """The same, also from where it takes time to read."""
        self._unwatch()
        self._size, self._urgent = 0, False
        for each in self._wanted:
            if self._gather(each):
                continue
            log, limit = each.log, self._limit(each)
            assert log is not None
            try:
                found = await log.fetch_stored(each.asked.offset, max(1, limit))
                self._take(each, found, limit)
            except StratalogError as error:
                self._fail(each, code_of(error))
        self._is_reading = False
        self._decide()
        if self._ends and any(map(_has_moved, self._wanted)):
            self._wake()  # it came while others were read

    def _decide(self) -> None:
        if self._answered:
            return
        enough = self._size >= max(1, self._request.bytes_min)
        if enough or self._urgent or self._is_last or self._request.bytes_min <= 0:
            self._answer(ErrorCode.none)
        elif not self._ends:
            self._watch()

    def _limit(self, each: _Wanted) -> int:
        """How many bytes this partition may still give."""
        of_all = min(self._request.bytes_max, self._handler.context.options.fetch_bytes_max)
        return max(0, min(each.asked.bytes_max, of_all - self._size))

    def _gather(self, each: _Wanted) -> bool:
        """Take what the partition has in memory. ``False``: it must be read from elsewhere."""
        log, answer = each.log, each.answer
        answer.parts, answer.size = (), 0
        if log is None:
            self._fail(each, ErrorCode.unknown_topic_or_partition)
            return True
        try:
            return self._gather_from(log, each)
        except StratalogError as error:
            self._fail(each, code_of(error))
            return True

    def _gather_from(self, log: PartitionLog, each: _Wanted) -> bool:
        asked, answer = each.asked, each.answer
        if asked.leader_epoch >= 0 and asked.leader_epoch != log.epoch:
            older = asked.leader_epoch < log.epoch
            code = ErrorCode.fenced_leader_epoch if older else ErrorCode.unknown_leader_epoch
            self._fail(each, code)
            return True
        answer.high_watermark = log.high_watermark
        answer.log_start = log.log_start
        if asked.last_epoch >= 0 and self._has_diverged(log, each):
            return True
        if answer.high_watermark <= asked.offset <= log.end:
            return True  # what is not committed yet is waited for
        limit = self._limit(each)
        if limit <= 0 and self._size:
            return True
        found = log.fetch(asked.offset, max(1, limit))
        if found is None:
            return False
        self._take(each, found, limit)
        return True

    def _take(self, each: _Wanted, found: Fetched, limit: int) -> None:
        if found.size > limit and self._size:
            return  # only the first batch of an answer may exceed the limits
        answer = each.answer
        answer.parts, answer.size = found.parts, found.size
        self._size += found.size

    def _has_diverged(self, log: PartitionLog, each: _Wanted) -> bool:
        """The client's last record is of an epoch that ended before it, or never was."""
        asked = each.asked
        ended = log.end_of_epoch(asked.last_epoch)
        if ended is None:
            self._fail(each, ErrorCode.offset_out_of_range)
            return True
        epoch, end = ended
        if epoch < asked.last_epoch or end < asked.offset:
            each.answer.diverged = ended
            self._urgent = True
            return True
        return False

    def _fail(self, each: _Wanted, code: ErrorCode) -> None:
        answer = each.answer
        answer.error = code.value
        answer.parts, answer.size = (), 0
        answer.high_watermark = answer.log_start = -1
        self._urgent = True

    def _watch(self) -> None:
        self._ends = [each.log.on_commit(self._wake) for each in self._wanted if each.log]
        if self._timer is None:
            seconds = min(self._request.wait_ms, WAIT_MS_MAX) / 1000
            self._timer = self._connection.loop.call_later(seconds, self._give_up)

    def _unwatch(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            end()

    def _wake(self) -> None:
        """There is more. Several commits at once wake it once."""
        if not self._woken:
            self._woken = True
            self._connection.loop.call_soon(self._look)

    def _give_up(self) -> None:
        """Its time is over, or the connection's: answer with what there is."""
        self._is_last = True
        self._wake()

    def _answer(self, code: ErrorCode) -> None:
        self._answered = True
        self._unwatch()
        if self._timer is not None:
            self._timer.cancel()
        request, handler = self._request, self._handler
        handler.context.meters.fetched_bytes += self._size
        buffers = fetch_answer(
            self._correlation_id,
            request.version,
            self._topics,
            committed_only=request.isolation == READ_COMMITTED,
            error=code.value,
        )
        failed = any(each.answer.error for each in self._wanted)
        self._slot.answer(buffers, handler.meter, failed=failed)


def _has_moved(each: _Wanted) -> bool:
    return each.log is not None and each.log.high_watermark != each.answer.high_watermark
