"""What is under way: units of fragments that upload side by side and are linked in order.

    accumulator ──► unit ──► upload ──┐
                    unit ──► upload ──┼──► commit, in order, every unit that is ready
                    unit ──► upload ──┘

A unit is linked whole: usually one fragment with many submissions, or one large `append_many`
over several fragments. Offsets are given out when a unit is formed, in the hope that all earlier
ones are linked. If one is not, the later ones are abandoned with it and formed again, so that
settling always happens in call order.

When does a unit start? A full one as soon as an upload is free. A small one at once if nothing is
uploading or waiting to be linked; otherwise it keeps gathering meanwhile. So an idle log writes
at once, and under load fragments grow rather than their number.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence

from stratalog.errors import Closed, Conflict, Fenced, NotHappened, StratalogError, Unknown
from stratalog.objectlog.accumulator import Accumulator, Submission
from stratalog.objectlog.committer import Committer, Outcome, Upload
from stratalog.objectlog.fragment import EncodedFragment, Fragment, encode_fragment
from stratalog.objectlog.options import KIB, RECORD_OVERHEAD_BYTES, WriterOptions
from stratalog.objectlog.position import LogPosition
from stratalog.objectlog.stats import WriterCounters
from stratalog.runtime import Runtime
from stratalog.store.cas import Patience, put_once
from stratalog.store.protocol import Store

log = logging.getLogger(__name__)

ENCODE_INLINE_BYTES_MAX = 32 * KIB


class Draft:
    """One fragment to be: its records and the position they hope for."""

    __slots__ = ("bodies", "encoded", "first_offset", "seq_no", "size", "upload")

    def __init__(self, bodies: Sequence[bytes], size: int, first_offset: int, seq_no: int) -> None:
        self.bodies = bodies
        self.size = size
        self.first_offset = first_offset
        self.seq_no = seq_no
        self.encoded: EncodedFragment | None = None
        self.upload: Upload | None = None


class Unit:
    """Drafts that are linked together, and the submissions whose records they hold."""

    __slots__ = ("drafts", "error", "ready", "submissions", "task", "timestamp_us")

    def __init__(
        self, submissions: list[Submission], drafts: list[Draft], timestamp_us: int
    ) -> None:
        self.submissions = submissions
        self.drafts = drafts
        self.timestamp_us = timestamp_us
        self.ready = False
        self.error: StratalogError | None = None
        self.task: asyncio.Task[None] | None = None


class Sender:
    """Moves submissions from the accumulator into the log."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        accumulator: Accumulator,
        options: WriterOptions,
        runtime: Runtime,
        counters: WriterCounters,
    ) -> None:
        self._store = store
        self._committer = committer
        self._accumulator = accumulator
        self._options = options
        self._runtime = runtime
        self._counters = counters
        self._units: deque[Unit] = deque()
        self._width = options.uploads_max
        self._uploading = 0
        self._committing = 0
        self._work: asyncio.Task[None] | None = None
        self._refusing: asyncio.Task[None] | None = None
        self._dispatch_scheduled = False
        self._started_s = float("-inf")
        self._committed_s = float("-inf")
        self._idle: list[asyncio.Future[None]] = []
        self.stopped: StratalogError | None = None
        self.first_failure: StratalogError | None = None
        self._next_offset = self._next_seq_no = self._timestamp_us = self._linked_upto = 0
        self._expect_tail()

    @property
    def idle(self) -> bool:
        """Whether everything submitted so far is settled."""
        return not self._units and not self._accumulator and self._refusing is None

    async def wait_until_settled(self) -> None:
        """Wait for what was submitted before this call. Settling keeps the order of the calls."""
        last = self._accumulator.last
        if last is None and self._units:
            last = self._units[-1].submissions[-1]
        if last is None:
            return
        if not last.future.done():
            await asyncio.wait([last.future])
        if last.future.cancelled():
            await self.wait_until_idle()

    async def wait_until_idle(self) -> None:
        """Wait until nothing at all is under way."""
        if not self.idle:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def wake(self) -> None:
        """Look for work once the callbacks of this moment have run, so that they share a unit."""
        if not self._dispatch_scheduled:
            self._dispatch_scheduled = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    async def close(self) -> None:
        """Stop all tasks. What is being linked right now is unknown; the rest did not happen."""
        if self.stopped is None and not self.idle:
            linking = [self._units[number] for number in range(self._committing)]
            self._fail(self._take(linking), Unknown("the writer was closed while linking"))
            self._stop(NotHappened("the writer was closed before the append was linked"))
        tasks = [task for task in (self._work, self._refusing) if task is not None]
        await _cancel(tasks)

    # Forming units

    def _dispatch(self) -> None:
        self._dispatch_scheduled = False
        while self.stopped is None and self._refusing is None and self._may_start():
            expected = self._accumulator.head.expected_offset
            if expected is not None and expected != self._next_offset:
                if not self._units:
                    waiting = self._accumulator.leading_conditional()
                    self._refusing = self._spawn(self._refuse(waiting))
                return
            unit = self._form_unit()
            self._units.append(unit)
            unit.task = self._spawn(self._upload_unit(unit))
        self._tell_if_idle()

    def _may_start(self) -> bool:
        if not self._accumulator:
            return False
        under_way = sum(len(unit.drafts) for unit in self._units)
        if under_way >= self._width:
            return False
        if self._accumulator.bytes >= self._options.fragment_bytes:
            return True
        if self._uploading or len(self._units) > self._committing:
            return False
        return self._interval_is_over()

    def _interval_is_over(self) -> bool:
        """Whether the next small unit may start; if not, a timer looks again when it may."""
        if not self._options.interval_s:
            return True
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        wait_s = self._started_s + self._options.interval_s - now_s
        if wait_s > 0:
            if not self._dispatch_scheduled:
                self._dispatch_scheduled = True
                loop.call_later(wait_s, self._dispatch)
            return False
        self._started_s = now_s
        return True

    def _form_unit(self) -> Unit:
        """Take submissions until a fragment is full. A large batch is a unit of its own."""
        taken, bodies, size = self._accumulator.take(
            self._options.fragment_bytes, self._next_offset
        )
        now_us = self._runtime.now_us()
        self._timestamp_us = max(self._timestamp_us, now_us)
        drafts = [self._draft(*part) for part in self._split(bodies, size)]
        return Unit(taken, drafts, self._timestamp_us)

    def _split(self, bodies: list[bytes], size: int) -> list[tuple[list[bytes], int]]:
        """Parts of about one fragment each, and no more of them than a manifest may link."""
        parts_max = self._options.manifest_fragments_max
        limit = max(self._options.fragment_bytes, -(-size // parts_max))
        if size <= limit or len(bodies) == 1:
            return [(bodies, size)]
        parts: list[tuple[list[bytes], int]] = []
        part: list[bytes] = []
        part_size = 0
        for body in bodies:
            part.append(body)
            part_size += len(body) + RECORD_OVERHEAD_BYTES
            if part_size >= limit and len(parts) < parts_max - 1:
                parts.append((part, part_size))
                part, part_size = [], 0
        if part:
            parts.append((part, part_size))
        return parts

    def _draft(self, bodies: list[bytes], size: int) -> Draft:
        draft = Draft(bodies, size, self._next_offset, self._next_seq_no)
        self._next_offset += len(bodies)
        self._next_seq_no += 1
        return draft

    def _expect_tail(self) -> None:
        """Continue where the linked log ends."""
        tail = self._committer.manifest.tail
        self._next_offset = tail.offset
        self._next_seq_no = self._committer.manifest.next_seq_no
        self._timestamp_us = tail.timestamp_us
        self._linked_upto = tail.offset

    # Uploading

    async def _upload_unit(self, unit: Unit) -> None:
        self._uploading += 1
        try:
            if len(unit.drafts) == 1:
                await self._upload(unit.drafts[0], unit.timestamp_us)
            else:
                async with asyncio.TaskGroup() as group:
                    for draft in unit.drafts:
                        group.create_task(self._upload(draft, unit.timestamp_us))
            unit.ready = True
        except* StratalogError as group_error:
            unit.error = _first(group_error)
        finally:
            self._uploading -= 1
        self._start_committing()
        if self._accumulator:
            self._dispatch()

    async def _upload(self, draft: Draft, timestamp_us: int) -> None:
        """Store a draft under a fresh name. It may be linked only in the epoch that began it."""
        committer = self._committer
        names, epoch = committer.names, committer.manifest.sweep_epoch
        encoded = draft.encoded
        if encoded is None:
            encoded = draft.encoded = await self._encode(draft, timestamp_us)
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        path = await put_once(
            self._store,
            lambda: names.fragment(draft.seq_no),
            encoded.data,
            Patience(self._runtime, self._options.timeout_s),
        )
        self._counters.fragments.add(loop.time() - started_s, len(encoded.data))
        limit_offset = draft.first_offset + len(draft.bodies)
        fragment = Fragment(
            path=path,
            seq_no=draft.seq_no,
            start=LogPosition(draft.first_offset, timestamp_us),
            limit=LogPosition(limit_offset, timestamp_us),
            num_bytes=len(encoded.data),
            setsum=encoded.setsum,
        )
        draft.upload = Upload(fragment, epoch)

    async def _encode(self, draft: Draft, timestamp_us: int) -> EncodedFragment:
        def encode() -> EncodedFragment:
            return encode_fragment(
                draft.first_offset, timestamp_us, draft.bodies, self._options.compression
            )

        if draft.size <= ENCODE_INLINE_BYTES_MAX:
            return encode()
        return await self._runtime.compute(encode)

    # Committing

    def _start_committing(self) -> None:
        if self._work is None and self.stopped is None:
            self._work = self._spawn(self._commit_ready())

    async def _commit_ready(self) -> None:
        try:
            while self._units and (self._units[0].ready or self._units[0].error):
                head = self._units[0]
                if head.error is not None:
                    self._abandon_from(head.error)
                    continue
                await self._wait_for_interval()
                group = self._ready_group()
                self._committing = len(group)
                if self._accumulator:
                    self._dispatch()
                try:
                    await self._commit(group)
                finally:
                    self._committing = 0
                if self._accumulator:
                    self.wake()
        finally:
            self._work = None
            self._tell_if_idle()

    def _ready_group(self) -> list[Unit]:
        group: list[Unit] = []
        fragments = 0
        for unit in self._units:
            fragments += len(unit.drafts)
            if not unit.ready or (group and fragments > self._options.manifest_fragments_max):
                break
            group.append(unit)
        return group

    async def _wait_for_interval(self) -> None:
        if self._options.interval_s:
            loop = asyncio.get_running_loop()
            wait_s = self._committed_s + self._options.interval_s - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._committed_s = loop.time()

    async def _commit(self, group: list[Unit]) -> None:
        uploads = [draft.upload for unit in group for draft in unit.drafts]
        try:
            outcome = await self._committer.commit([each for each in uploads if each is not None])
        except Unknown as error:
            self._fail(self._take(group), error)
            self._stop(
                NotHappened(f"the writer stopped before this append: {error}"),
                Closed(f"the writer is closed, because an outcome is unknown: {error}"),
            )
            return
        except StratalogError as error:
            self._stop(error)
            return
        if outcome is Outcome.LINKED:
            self._width = self._options.uploads_max
            self._acknowledge(group)
            if self._committer.manifest.tail.offset != self._linked_upto:
                self._fence()
        elif outcome is Outcome.TAIL_MOVED:
            self._fence()
        else:
            await self._upload_again(group)

    async def _upload_again(self, group: list[Unit]) -> None:
        """A sweep may have taken these. Nothing was acknowledged: store them under new names."""
        self._counters.uploads_again += len(group)
        for unit in group:
            unit.ready = False
            await self._upload_unit_again(unit)

    async def _upload_unit_again(self, unit: Unit) -> None:
        try:
            for draft in unit.drafts:
                await self._upload(draft, unit.timestamp_us)
            unit.ready = True
        except StratalogError as error:
            unit.error = error

    def _acknowledge(self, group: list[Unit]) -> None:
        now_s = asyncio.get_running_loop().time()
        counters = self._counters
        for unit in group:
            submissions = self._take([unit])
            counters.appends.add(now_s - submissions[0].called_s)
            counters.records += sum(len(draft.bodies) for draft in unit.drafts)
            counters.record_bytes += sum(draft.size for draft in unit.drafts)
            offset, timestamp_us = unit.drafts[0].first_offset, unit.timestamp_us
            for submission in submissions:
                submission.succeed(offset, timestamp_us)
                offset += len(submission.bodies)
            self._linked_upto = offset

    def _take(self, group: list[Unit]) -> list[Submission]:
        """Remove units from the front; gives their submissions."""
        submissions: list[Submission] = []
        for unit in group:
            taken = self._units.popleft()
            assert taken is unit, "units settle in order"
            submissions.extend(unit.submissions)
        return submissions

    # When it does not go on

    def _abandon_from(self, error: StratalogError) -> None:
        """The first unit could not be stored: it failed, and the later ones are formed again."""
        failed = self._units.popleft()
        self._fail(failed.submissions, error)
        self._form_again()

    def _form_again(self) -> None:
        for unit in self._units:
            if unit.task is not None:
                unit.task.cancel()
        self._accumulator.push_back(
            submission for unit in self._units for submission in unit.submissions
        )
        self._units.clear()
        self._expect_tail()
        self.wake()

    def _fence(self) -> None:
        """Another writer appended. What we did not link did not happen."""
        if self._options.on_fenced == "raise":
            tail = self._committer.manifest.tail.offset
            self._stop(Fenced(f"another writer took over; the log ends at {tail}", actual=tail))
            return
        self._counters.reopenings += 1
        self._committer.take_over()
        self._width = 1
        self._form_again()

    def _stop(self, error: StratalogError, afterwards: StratalogError | None = None) -> None:
        """Nothing more will be written: everything that is not linked did not happen."""
        self.stopped = afterwards or error
        for unit in self._units:
            if unit.task is not None:
                unit.task.cancel()
        unlinked = [submission for unit in self._units for submission in unit.submissions]
        self._units.clear()
        self._fail([*unlinked, *self._accumulator.drain()], error)
        self._tell_if_idle()

    def _fail(self, submissions: Iterable[Submission], error: StratalogError) -> None:
        for submission in submissions:
            submission.fail(error)
            if not submission.watched and self.first_failure is None:
                self.first_failure = error

    async def _refuse(self, waiting: Sequence[Submission]) -> None:
        """Conditional appends that do not fit: answered from what is linked, nothing else.

        One read serves all that were called before it.
        """
        error: StratalogError | None = None
        try:
            same_tail = await self._committer.refresh()
        except StratalogError as failure:
            error, same_tail = failure, True
        self._refusing = None
        tail = self._committer.manifest.tail.offset
        for submission in waiting:
            expected = submission.expected_offset
            if self._accumulator.first is not submission or (error is None and expected == tail):
                break
            self._accumulator.pop()
            self._counters.conditional_refusals += 1
            refusal = Conflict(
                f"the log ends at {tail}, not at {expected}", expected=expected, actual=tail
            )
            self._fail([submission], error or refusal)
        if not same_tail:
            self._fence()
        else:
            self._expect_tail()
        self.wake()

    def _tell_if_idle(self) -> None:
        if self._idle and self.idle:
            waiting, self._idle = self._idle, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._report_defect)
        return task

    def _report_defect(self, task: asyncio.Task[None]) -> None:
        """A defect of ours must not leave callers waiting for ever."""
        error = None if task.cancelled() else task.exception()
        if error is not None and self.stopped is None:
            log.error("the writer failed", exc_info=error)
            self._stop(Unknown(f"the writer failed: {error!r}"))


def _first(group: ExceptionGroup[StratalogError]) -> StratalogError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, StratalogError)
    return error


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
