"""Group commit: one task links, in order, every unit that is ready.

While one manifest is put the next units become ready, and are linked together by the next one. If
a unit is not linked, the later ones are abandoned with it and formed again, so that submissions
are always settled in the order of the calls.

A submission is settled once, whatever happens: it is in the log, it did not happen, or nobody can
say (``Unknown``), and then the writer is closed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from functools import partial

from stratalog.errors import (
    Closed,
    Conflict,
    Fenced,
    NotHappened,
    StratalogError,
    Unavailable,
    Unknown,
)
from stratalog.objectlog.append.accumulator import Accumulator, Submission
from stratalog.objectlog.append.answers import Answers
from stratalog.objectlog.append.committer import CommitOutcome, Committer
from stratalog.objectlog.append.context import WriterContext
from stratalog.objectlog.append.unit_former import UnitFormer
from stratalog.objectlog.append.units import Unit, UnitsUnderWay
from stratalog.objectlog.append.uploader import upload
from stratalog.objectlog.append.wakeup import Wakeup
from stratalog.objectlog.stored import sealed

log = logging.getLogger(__name__)


class GroupCommit:
    def __init__(
        self,
        context: WriterContext,
        accumulator: Accumulator,
        units: UnitsUnderWay,
        former: UnitFormer,
        committer: Committer,
        wakeup: Wakeup,
    ) -> None:
        self._accumulator = accumulator
        self._units = units
        self._former = former
        self._committer = committer
        self._wakeup = wakeup
        self._options = context.options
        self._counters = context.counters
        self.upload = partial(upload, context, committer)
        self.answers = Answers(context.counters)
        self._committing: asyncio.Task[None] | None = None
        self._refusing: asyncio.Task[None] | None = None
        self._idle: list[asyncio.Future[None]] = []
        self._committed_s = float("-inf")
        self._linked_upto = committer.manifest.tail.offset
        self.stopped = False

    @property
    def idle(self) -> bool:
        return not self._units and not self._accumulator and not self.refusing

    @property
    def refusing(self) -> bool:
        """Whether conditional appends are being refused. No unit is formed meanwhile."""
        return not _ended(self._refusing)

    async def wait_until_idle(self) -> None:
        if not self.idle:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def notify_if_idle(self) -> None:
        if self._idle and self.idle:
            waiting, self._idle = self._idle, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    async def close(self) -> None:
        """End the tasks. Everything is settled when this is called."""
        tasks = [task for task in (self._committing, self._refusing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Linking

    def commit_ready(self) -> None:
        """Link what is ready, unless the task that does is at work already."""
        if _ended(self._committing) and not self.stopped:
            self._committing = self.spawn(self._commit_ready())

    async def _commit_ready(self) -> None:
        try:
            while (first := self._units.first) is not None and (first.ready or first.error):
                if first.error is not None:
                    self._abandon(first, first.error)
                    continue
                await self._wait_for_interval()
                group = self._units.ready(self._options.manifest_fragments_max)
                self._units.linking = group
                self._wakeup.wake()
                await self._commit(group)
                # Not when it was cut short: then these are in doubt (`_look_after`).
                self._units.linking = []
                self._wakeup.wake()
        finally:
            self._committing = None
            self.notify_if_idle()

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
            self._abandon(group[0], error)
        except StratalogError as error:
            self._stop(error)
        else:
            await self._after_commit(outcome, group)

    async def _after_commit(self, outcome: CommitOutcome, group: list[Unit]) -> None:
        if self.stopped:
            return  # Everything was settled meanwhile, this group as unknown.
        if outcome is CommitOutcome.EPOCH_MOVED:
            await self._upload_again(group)
            return
        if outcome is CommitOutcome.LINKED:
            self._former.fragments_max = self._options.uploads_max
            self._acknowledge(group)
        if self._committer.manifest.tail.offset != self._linked_upto:
            self._fence()

    def _acknowledge(self, group: list[Unit]) -> None:
        now_s = asyncio.get_running_loop().time()
        pace = self._former.pace
        pace.stored(group[0].put_s + self._committer.put_s)
        if self._wakeup.thread is None:  # Otherwise the next dispatch comes before they do.
            pace.answered(sum(len(unit.submissions) for unit in group), now_s)
        for unit in group:
            self._linked_upto = self.answers.acknowledge(unit, self._units.take([unit]), now_s)

    async def _upload_again(self, group: list[Unit]) -> None:
        """A sweep may have taken these. Nothing was acknowledged: store them under new names."""
        self._counters.uploads_again += len(group)
        for unit in group:
            unit.ready = False
            try:
                for draft in unit.drafts:
                    await self.upload(draft, unit.timestamp_us)
                unit.ready = True
            except StratalogError as error:
                unit.error = error

    # When units cannot be linked

    def _abandon(self, first: Unit, error: StratalogError) -> None:
        """The first unit failed. What waited as long for a store that does not answer fails too;
        the rest is formed again."""
        failed = self._units.take([first])
        self._form_again()
        if isinstance(error, Unavailable):
            since_s = asyncio.get_running_loop().time() - self._options.timeout_s
            while self._accumulator.first and self._accumulator.first.called_s <= since_s:
                failed.append(self._accumulator.pop())
        self.answers.fail(failed, error)

    def _form_again(self) -> None:
        units = self._cancel_uploads()
        self._accumulator.push_back(each for unit in units for each in unit.submissions)
        self._begin_at_tail()
        self._wakeup.wake()

    def _begin_at_tail(self) -> None:
        self._former.begin_at_tail(self._committer.manifest)
        self._linked_upto = self._committer.manifest.tail.offset

    def _cancel_uploads(self) -> list[Unit]:
        """Stop all uploads; gives the units that were under way."""
        units = self._units.take_all()
        for unit in units:
            task, unit.task = unit.task, None
            if task is not None:
                task.remove_done_callback(self._look_after)
                task.cancel()
        return units

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
            self._former.fragments_max = 1
            self._form_again()

    def _stop(self, error: StratalogError, afterwards: StratalogError | None = None) -> None:
        """Nothing more will be written: everything that is not linked did not happen."""
        self.stopped = True
        unlinked = [each for unit in self._cancel_uploads() for each in unit.submissions]
        waiting = self._accumulator.stop(afterwards or error)
        self.answers.fail([*unlinked, *waiting], error)
        self.notify_if_idle()

    def _stop_in_doubt(self, doubt: Unknown) -> None:
        """What was being linked is unknown, the rest did not happen, and the writer is closed."""
        self.answers.fail(self._units.take_linking(), doubt)
        self._stop(
            NotHappened(f"the writer stopped before this append: {doubt}"),
            Closed(f"the writer is closed, because an outcome is unknown: {doubt}"),
        )

    # Conditional appends that do not fit

    def refuse_conditional(self) -> None:
        """Refuse the waiting appends that expect another offset, as long as nothing is linked."""
        self._refusing = self.spawn(self._refuse(self._accumulator.leading_conditional()))

    async def _refuse(self, waiting: Sequence[Submission]) -> None:
        """Answered from what is linked, nothing else. One read serves all that came before it."""
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
            self.answers.fail([submission], error or refusal)
        if not same_tail:
            self._fence()
        else:
            self._begin_at_tail()
        self._wakeup.wake()

    # Tasks

    def spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Run a task of the writer. If it dies, everything is settled all the same."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._look_after)
        return task

    def _look_after(self, task: asyncio.Task[None]) -> None:
        """A task that ends by a defect, or that others cancel, leaves nobody waiting for ever."""
        if self.stopped or self.idle:
            return
        if task.cancelled():
            self._stop_in_doubt(Unknown("the writer's tasks were cancelled"))
            # The program ends, or somebody ended it on purpose: no need to cry out as well.
            self.answers.take_unseen_failure()
        elif (error := task.exception()) is not None:
            log.error("the writer failed", exc_info=error)
            self._stop_in_doubt(Unknown(f"the writer failed: {error!r}"))


def _ended(task: asyncio.Task[None] | None) -> bool:
    return task is None or task.done()
