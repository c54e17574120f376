"""What is under way: units that upload side by side and are linked in order.

    accumulator ──► unit ──► upload ──┐
                    unit ──► upload ──┼──► commit, in order, every unit that is ready
                    unit ──► upload ──┘

Offsets are given out when a unit is formed, in the hope that all earlier ones are linked. If one
is not, the later ones are abandoned with it and formed again, so that settling always happens in
call order.

When does a unit start? A full one as soon as an upload is free. A small one when nothing uploads or
waits to be linked; until then it gathers. So an idle log writes at once, and under load fragments
grow rather than their number.

Callers that move in step may be divided into halves (``pace.py``), of which one is uploaded while
the other is answered. A half that is complete may start beside the other.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from threading import get_ident
from weakref import WeakSet

from stratalog.errors import (
    Closed,
    Conflict,
    Fenced,
    NotHappened,
    StratalogError,
    Unavailable,
    Unknown,
)
from stratalog.invariants import invariant
from stratalog.objectlog.append.accumulator import Accumulator, Submission
from stratalog.objectlog.append.committer import Committer, Outcome
from stratalog.objectlog.append.pace import Pace
from stratalog.objectlog.append.units import Draft, Half, Unit, divide, fragments_for
from stratalog.objectlog.append.uploader import Beside, Uploader
from stratalog.objectlog.options import WriterOptions
from stratalog.objectlog.stats import WriterCounters
from stratalog.objectlog.stored import sealed
from stratalog.runtime import Runtime
from stratalog.store import Store

log = logging.getLogger(__name__)

FAILURES_KEPT_MAX = 1000
COMPLETE = 0.75
"""A half is complete when it has this part of the size that the other one has."""

_senders: WeakSet[Sender] = WeakSet()


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
        beside: Beside | None = None,
    ) -> None:
        self._uploader = Uploader(store, committer, options, runtime, counters, beside)
        self._committer = committer
        self._accumulator = accumulator
        self._options = options
        self._runtime = runtime
        self._counters = counters
        self._units: deque[Unit] = deque()
        self._width = options.uploads_max
        self._uploading = 0
        self._linking: list[Unit] = []
        self._work: asyncio.Task[None] | None = None
        self._refusing: asyncio.Task[None] | None = None
        self.turn: int | None = None
        self.woken_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._started_s = float("-inf")
        self._committed_s = float("-inf")
        self._pace = Pace()
        self._idle: list[asyncio.Future[None]] = []
        self._failed: list[Submission] = []
        self.stopped: StratalogError | None = None
        _senders.add(self)
        self._next_offset = self._next_seq_no = self._timestamp_us = self._linked_upto = 0
        self._expect_tail()

    @property
    def idle(self) -> bool:
        """Whether everything submitted so far is settled."""
        return not self._units and not self._accumulator and _ended(self._refusing)

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

    def take_unseen_failure(self) -> StratalogError | None:
        """The first failure of a `submit` whose future nobody has looked at, and forget them."""
        failed, self._failed = self._failed, []
        unseen = [each.take_unseen_failure() for each in failed]
        return next((error for error in unseen if error is not None), None)

    def wake(self) -> None:
        """Look for work once the callbacks of this moment have run, so that they share a unit.

        ``turn`` is the thread of these callbacks until then. ``woken_s`` is when the first of them
        came, and is taken for the time of all.
        """
        if self.turn is None:
            loop = asyncio.get_running_loop()
            self.woken_s = loop.time()
            loop.call_soon(self._dispatch)
            self.turn = get_ident()

    async def close(self) -> None:
        """End the tasks. Everything is settled when this is called."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for task in (self._work, self._refusing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Forming units

    def _dispatch(self) -> None:
        self.turn = None
        now_s = asyncio.get_running_loop().time()
        self._pace.returned(now_s, with_more=bool(self._accumulator))
        while self.stopped is None and _ended(self._refusing):
            first = self._accumulator.first
            if first is None or not self._may_start():
                break
            if first.expected_offset not in (None, self._next_offset):
                if not self._units:
                    waiting = self._accumulator.leading_conditional()
                    self._refusing = self._spawn(self._refuse(waiting))
                return
            if not self._interval_is_over():
                break
            unit = self._form_unit()
            self._units.append(unit)
            unit.task = self._spawn(self._upload_unit(unit))
        self._tell_if_idle()

    def _may_start(self) -> bool:
        if sum(len(unit.drafts) for unit in self._units) >= self._width:
            return False
        waiting, full = self._accumulator.bytes, self._options.fragment_bytes
        if waiting >= full:
            return True
        unlinked = len(self._units) - len(self._linking)
        last = self._units[-1] if self._units else None
        if last is None or last.half is None:
            return not unlinked and not self._uploading
        if not self._divides():
            return False  # The halves wait for each other, and are one again.
        if not unlinked:
            return True
        return unlinked == 1 and last.half == "second" and waiting >= COMPLETE * last.size

    def _divides(self) -> bool:
        if self._options.interval_s:
            return False  # Half of the callers would wait for one interval more.
        under_way = sum(len(unit.submissions) for unit in self._units)
        return self._pace.divides(len(self._accumulator) + under_way)

    def _interval_is_over(self) -> bool:
        """Whether the next small unit may start; if not, a timer looks again when it may."""
        if not self._options.interval_s:
            return True
        if self._accumulator.bytes >= self._options.fragment_bytes:
            return True
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        wait_s = self._started_s + self._options.interval_s - now_s
        if wait_s > 0:
            if self._timer is None:
                self._timer = loop.call_later(wait_s, self._ring)
            return False
        self._started_s = now_s
        return True

    def _ring(self) -> None:
        self._timer = None
        self._dispatch()

    def _form_unit(self) -> Unit:
        """Take submissions until a fragment is full. A large batch is a unit of its own."""
        full, waiting = self._options.fragment_bytes, self._accumulator.bytes
        limit = waiting if fragments_for(waiting, full) == 1 else full
        half: Half | None = None
        if self._units:
            half = "second" if self._units[-1].half and waiting == limit else None
        elif full // 2 <= waiting == limit and self._divides():
            half, limit = "first", waiting // 2
        taken, bodies, size = self._accumulator.take(limit, self._next_offset)
        if half == "first" and min(size, waiting - size) < COMPLETE * max(size, waiting - size):
            half = None
            self._accumulator.push_back(taken)
            taken, bodies, size = self._accumulator.take(waiting, self._next_offset)
        self._timestamp_us = max(self._timestamp_us, self._runtime.now_us())
        count = min(fragments_for(size, full), self._options.manifest_fragments_max)
        drafts = [self._draft(*part) for part in divide(bodies, size, count)]
        return Unit(taken, drafts, self._timestamp_us, half)

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
                await self._uploader.upload(unit.drafts[0], unit.timestamp_us)
            else:
                async with asyncio.TaskGroup() as group:
                    for draft in unit.drafts:
                        group.create_task(self._uploader.upload(draft, unit.timestamp_us))
            unit.ready = True
        except* StratalogError as errors:
            unit.error = _first(errors)
        finally:
            # Also when it was cancelled: what waits may be waiting for this upload to end.
            self._uploading -= 1
            self.wake()
        self._start_committing()

    # Committing

    def _start_committing(self) -> None:
        if _ended(self._work) and self.stopped is None:
            self._work = self._spawn(self._commit_ready())

    async def _commit_ready(self) -> None:
        try:
            while self._units and (self._units[0].ready or self._units[0].error):
                error = self._units[0].error
                if error is not None:
                    self._abandon(error)
                    continue
                await self._wait_for_interval()
                self._linking = self._ready_group()
                self.wake()
                await self._commit(self._linking)
                # Not when it was cut short: then these are in doubt (`_look_after`).
                self._linking = []
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
        try:
            outcome = await self._committer.commit([up for unit in group for up in unit.uploads])
        except Unknown as error:
            self._stop_in_doubt(error)
        except Unavailable as error:
            self._abandon(error)
        except StratalogError as error:
            self._stop(error)
        else:
            await self._after_commit(outcome, group)

    async def _after_commit(self, outcome: Outcome, group: list[Unit]) -> None:
        if self.stopped is not None:
            return  # Everything was settled meanwhile, this group as unknown.
        if outcome is Outcome.EPOCH_MOVED:
            await self._upload_again(group)
            return
        if outcome is Outcome.LINKED:
            self._width = self._options.uploads_max
            self._acknowledge(group)
        if self._committer.manifest.tail.offset != self._linked_upto:
            self._fence()

    async def _upload_again(self, group: list[Unit]) -> None:
        """A sweep may have taken these. Nothing was acknowledged: store them under new names."""
        self._counters.uploads_again += len(group)
        for unit in group:
            unit.ready = False
            try:
                for draft in unit.drafts:
                    await self._uploader.upload(draft, unit.timestamp_us)
                unit.ready = True
            except StratalogError as error:
                unit.error = error

    def _acknowledge(self, group: list[Unit]) -> None:
        now_s = asyncio.get_running_loop().time()
        self._pace.stored(group[0].put_s + self._committer.put_s)
        if self.turn is None:  # Otherwise the next dispatch comes before they do.
            self._pace.answered(sum(len(unit.submissions) for unit in group), now_s)
        counters = self._counters
        for unit in group:
            submissions = self._take([unit])
            counters.appends.add(now_s - submissions[0].called_s)
            counters.records += sum(len(draft.bodies) for draft in unit.drafts)
            counters.record_bytes += sum(draft.size for draft in unit.drafts)
            offset, timestamp_us = unit.drafts[0].first_offset, unit.timestamp_us
            for submission in submissions:
                if not submission.future.done():
                    submission.succeed(offset, timestamp_us)
                offset += len(submission.bodies)
            self._linked_upto = offset

    def _take(self, group: list[Unit]) -> list[Submission]:
        """Remove units from the front; gives their submissions."""
        submissions: list[Submission] = []
        for unit in group:
            invariant(self._units.popleft() is unit, "units settle in order")
            submissions.extend(unit.submissions)
        return submissions

    # When it does not go on

    def _abandon(self, error: StratalogError) -> None:
        """The first unit failed. What waited as long for a store that does not answer fails too;
        the rest is formed again."""
        failed = self._take([self._units[0]])
        self._form_again()
        if isinstance(error, Unavailable):
            since_s = asyncio.get_running_loop().time() - self._options.timeout_s
            while self._accumulator.first and self._accumulator.first.called_s <= since_s:
                failed.append(self._accumulator.pop())
        self._fail(failed, error)

    def _form_again(self) -> None:
        self._accumulator.push_back(self._drop_units())
        self._expect_tail()
        self.wake()

    def _drop_units(self) -> list[Submission]:
        """Stop all uploads; gives the submissions that were under way."""
        units, self._units = self._units, deque()
        for unit in units:
            task, unit.task = unit.task, None
            if task is not None:
                task.remove_done_callback(self._look_after)
                task.cancel()
        return [submission for unit in units for submission in unit.submissions]

    def _fence(self) -> None:
        """Another writer appended. What we did not link did not happen."""
        manifest = self._committer.manifest
        tail = manifest.tail.offset
        if manifest.seal is not None:
            self._stop(sealed(manifest))
        elif self._options.on_fenced == "raise":
            self._stop(Fenced(f"another writer took over; the log ends at {tail}", actual=tail))
        else:
            self._counters.reopenings += 1
            self._committer.take_over()
            self._width = 1
            self._form_again()

    def _stop(self, error: StratalogError, afterwards: StratalogError | None = None) -> None:
        """Nothing more will be written: everything that is not linked did not happen."""
        self.stopped = afterwards or error
        self._fail([*self._drop_units(), *self._accumulator.drain()], error)
        self._tell_if_idle()

    def _stop_in_doubt(self, doubt: Unknown) -> None:
        """What was being linked is unknown, the rest did not happen, and the writer is closed."""
        self._fail(self._take([unit for unit in self._linking if unit in self._units]), doubt)
        self._stop(
            NotHappened(f"the writer stopped before this append: {doubt}"),
            Closed(f"the writer is closed, because an outcome is unknown: {doubt}"),
        )

    def _fail(self, submissions: Iterable[Submission], error: StratalogError) -> None:
        for submission in submissions:
            submission.fail(error)
            if not submission.watched and len(self._failed) < FAILURES_KEPT_MAX:
                self._failed.append(submission)

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

    # Tasks

    def _tell_if_idle(self) -> None:
        if self._idle and self.idle:
            waiting, self._idle = self._idle, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._look_after)
        return task

    def _look_after(self, task: asyncio.Task[None]) -> None:
        """A task that ends by a defect, or that others cancel, leaves nobody waiting for ever."""
        if self.stopped is not None or self.idle:
            return
        if task.cancelled():
            self._stop_in_doubt(Unknown("the writer's tasks were cancelled"))
            # The program ends, or somebody ended it on purpose: no need to cry out as well.
            self.take_unseen_failure()
        elif (error := task.exception()) is not None:
            log.error("the writer failed", exc_info=error)
            self._stop_in_doubt(Unknown(f"the writer failed: {error!r}"))


def _end_turns() -> None:
    """A forked child has no loop that runs, and what its parent's will do does not concern it."""
    for sender in _senders:
        sender.turn = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_turns)


def _ended(task: asyncio.Task[None] | None) -> bool:
    return task is None or task.done()


def _first(group: ExceptionGroup[StratalogError]) -> StratalogError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, StratalogError)
    return error
