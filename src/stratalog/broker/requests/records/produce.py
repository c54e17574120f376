"""Produce: batches in, offsets out, with no task and no coroutine for a request.

    checked → appended in the order of the connection → a callback fills in the offset → answered

A partition that has no room stops its connection: the rest of the request and the requests after it
wait, in order, until there is room. A request that takes longer than its client would wait is
answered with ``request_timed_out``; what was appended of it stays.
"""

import asyncio
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode

from stratalog.broker.context import BrokerContext
from stratalog.broker.requests.records.refusals import refusal_of
from stratalog.broker.topics import Topic
from stratalog.broker.wire import (
    PRODUCE_FIRST,
    PRODUCE_LAST,
    Connection,
    Malformed,
    PartitionProduce,
    ProduceRequest,
    RequestHeader,
    Slot,
    produce_answer,
    read_produce,
)
from stratalog.errors import Full, StratalogError
from stratalog.meter import Meter
from stratalog.partitions import Appended, Batch, PartitionLog, check_batch, set_append_time

FLEXIBLE_FROM: Final = 9
NO_ANSWER: Final = 0
KNOWN_ACKS: Final = (-1, 0, 1)
FRAME_TO_BATCH_MAX: Final = 4
"""How many times the memory of its records a kept batch may hold."""


class Produce:
    """Handles all requests to produce."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.meter = context.meters.request("Produce")

    def __call__(self, connection: Connection, frame: memoryview, header: RequestHeader) -> None:
        version = header.version
        if not PRODUCE_FIRST <= version <= PRODUCE_LAST:
            raise Malformed(f"Produce v{version} is not served")
        at = header.payload_at(frame, flexible=version >= FLEXIBLE_FROM)
        request = read_produce(version, frame, at)
        slot = None if request.acks == NO_ANSWER else connection.slot(frame)
        _Producing(self, connection, frame, slot, header.correlation_id, request).begin()


class _Part:
    """What a request brings to one partition."""

    __slots__ = ("batch", "each", "topic")

    def __init__(self, topic: Topic | None, each: PartitionProduce) -> None:
        self.topic = topic
        self.each = each
        self.batch: Batch | None = None
        """When it was checked. That is done once: from then on its memory may be the log's."""


class _Producing:
    """One request, until it is answered."""

    __slots__ = (
        "connection",
        "correlation_id",
        "frame",
        "handler",
        "is_over",
        "left",
        "request",
        "slot",
        "waiting",
    )

    def __init__(
        self,
        handler: Produce,
        connection: Connection,
        frame: memoryview,
        slot: Slot | None,
        correlation_id: int,
        request: ProduceRequest,
    ) -> None:
        self.handler = handler
        self.connection = connection
        self.frame = frame
        self.slot = slot
        self.correlation_id = correlation_id
        self.request = request
        self.left = 1
        """Partitions without an outcome; and one while they are still being handed over."""
        self.waiting: list[_Part] = []
        """What is still to be appended, the next one last."""
        self.is_over = False

    def begin(self) -> None:
        request, slot = self.request, self.slot
        if request.transactional_id is not None:
            self._refuse_all(ErrorCode.transactional_id_authorization_failed)
        elif request.acks not in KNOWN_ACKS:
            self._refuse_all(ErrorCode.invalid_required_acks)
        else:
            topics = self.handler.context.topics
            for topic in request.topics:
                known = topics.get(topic.name)
                for each in topic.partitions:
                    self.waiting.append(_Part(known, each))
            self.waiting.reverse()
            self.left += len(self.waiting)
            if slot is not None and request.timeout_ms >= 0:
                slot.deadline = slot.started + request.timeout_ms / 1000
                slot.on_late = self._late
        self._go_on()

    def _go_on(self) -> None:
        """Append what is still to be appended, as far as there is room."""
        waiting = self.waiting
        while waiting:
            part = waiting[-1]
            topic, each = part.topic, part.each
            log = None if topic is None else topic.partition(each.index)
            if topic is None or log is None:
                each.refuse(ErrorCode.unknown_topic_or_partition.value)
                self.left -= 1
            else:
                try:
                    self._append(topic, log, part)
                except Full:
                    self.connection.block(self._after_room(log))
                    return
                except StratalogError as error:
                    each.refuse(refusal_of(error).value, error.message)
                    self.left -= 1
            waiting.pop()
        self.left -= 1
        if not self.left:
            self._end()

    def _append(self, topic: Topic, log: PartitionLog, part: _Part) -> None:
        batch = part.batch
        if batch is None:
            batch = part.batch = self._checked(topic, part.each)
        log.append(batch).add_done_callback(partial(self._done, part.each, log))
        meters = self.handler.context.meters
        meters.produced_bytes += len(batch.data)
        meters.produced_records += batch.count

    def _checked(self, topic: Topic, each: PartitionProduce) -> Batch:
        now_ms = self.handler.context.runtime.now_us() // 1000
        limits = topic.limits
        batch = check_batch(self._own_memory(each.records or b""), limits, now_ms)
        if limits.uses_append_time:
            batch = set_append_time(batch, now_ms)
            each.append_time_ms = now_ms
        return batch

    def _own_memory(self, records: memoryview | bytes) -> memoryview | bytes:
        """What the log keeps of a request lies in the request's memory, and keeps all of it. So a
        batch that is a small part of its request is copied."""
        if len(records) * FRAME_TO_BATCH_MAX >= len(self.frame):
            return records
        return memoryview(bytearray(records))

    def _done(
        self, each: PartitionProduce, log: PartitionLog, future: "asyncio.Future[Appended]"
    ) -> None:
        """The outcome of one partition is known."""
        if self.is_over:
            if not future.cancelled():
                future.exception()  # it has been looked at: nobody waits for it any more
            return
        if future.cancelled():
            each.refuse(ErrorCode.not_leader_or_follower.value)
        elif (error := future.exception()) is None:
            each.base_offset = future.result().base_offset
            each.log_start = log.log_start
        elif isinstance(error, StratalogError):
            each.refuse(refusal_of(error).value, error.message)
        else:
            each.refuse(ErrorCode.unknown_server_error.value)
        self.left -= 1
        if not self.left:
            self._end()

    async def _after_room(self, log: PartitionLog) -> None:
        failure: StratalogError | None = None
        try:
            await log.room()
        except StratalogError as error:
            failure = error
        if self.is_over:
            return
        if failure is not None:
            self.waiting.pop().each.refuse(refusal_of(failure).value, failure.message)
            self.left -= 1
        self._go_on()

    def _late(self) -> None:
        """Its client has waited for long enough."""
        for topic in self.request.topics:
            for each in topic.partitions:
                each.records = None
                if not each.error and each.base_offset < 0:
                    each.refuse(ErrorCode.request_timed_out.value)
        self.waiting.clear()
        self.frame = memoryview(b"")  # it is given back, also if this waits for room for long
        self._end()

    def _refuse_all(self, code: ErrorCode) -> None:
        for topic in self.request.topics:
            for each in topic.partitions:
                each.refuse(code.value)

    def _end(self) -> None:
        self.is_over = True
        failed = any(each.error for topic in self.request.topics for each in topic.partitions)
        slot, meter = self.slot, self.handler.meter
        if slot is not None:
            slot.answer((produce_answer(self.correlation_id, self.request),), meter, failed=failed)
            return
        connection = self.connection
        connection.no_answer(self.frame)
        _count_unanswered(meter, connection, self.frame, failed=failed)
        if failed:
            # As Kafka does: a client that asks for no answers learns of a failure by it.
            connection.break_off("records that want no answer were refused")


def _count_unanswered(
    meter: Meter, connection: Connection, frame: memoryview, *, failed: bool
) -> None:
    meter.add(connection.loop.time() - connection.active_at, len(frame), failed=failed)
