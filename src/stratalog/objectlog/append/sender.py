"""The way of a submission: it waits, becomes part of a unit, is uploaded and linked.

    accumulator ──► unit ──► upload ──┐
                    unit ──► upload ──┼──► commit, in order, every unit that is ready
                    unit ──► upload ──┘

Units upload side by side. ``unit_former`` says when the next one starts and what goes into it,
``group_commit`` what becomes of those that are uploaded.
"""

import asyncio
from threading import get_ident

from stratalog.errors import Closed, Invalid, StratalogError
from stratalog.objectlog.append.accumulator import Accumulator, Result, Submission, UnwatchedFuture
from stratalog.objectlog.append.committer import Committer
from stratalog.objectlog.append.context import WriterContext
from stratalog.objectlog.append.group_commit import GroupCommit
from stratalog.objectlog.append.unit_former import UnitFormer
from stratalog.objectlog.append.units import Unit, UnitsUnderWay
from stratalog.objectlog.append.wakeup import Wakeup
from stratalog.objectlog.stored import check_offset


class Sender:
    def __init__(
        self, context: WriterContext, committer: Committer, accumulator: Accumulator
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._accumulator = accumulator
        self._wakeup = Wakeup(self._dispatch)
        self._timer: asyncio.TimerHandle | None = None
        self._uploading = 0
        self.units = UnitsUnderWay()
        self._former = UnitFormer(context, accumulator, self.units, committer.manifest)
        self._group_commit = GroupCommit(
            context, accumulator, self.units, self._former, committer, self._wakeup
        )
        self.answers = self._group_commit.answers

    def submit(
        self,
        records: tuple[bytes, ...] | list[bytes],
        size: int,
        one: bool,
        watched: bool,
        expected_offset: int | None,
    ) -> asyncio.Future[Result]:
        """Put records in line. A caller that is not ``watched`` may never look at the future."""
        accumulator, wakeup, loop = self._accumulator, self._wakeup, self._loop
        if accumulator.refusal is not None:
            accumulator.check_open()
        if expected_offset is not None:
            check_offset(expected_offset)
        if wakeup.thread != get_ident() or not loop.is_running():
            # Only the first caller of a turn: to ask for the running loop takes a system call.
            self.check_loop()
            wakeup.wake()
        future: asyncio.Future[Result]
        future = loop.create_future() if watched else UnwatchedFuture(loop=loop)
        accumulator.push(Submission(records, size, future, wakeup.at_s, one, expected_offset))
        return future

    def check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise Invalid(
                "this writer belongs to another event loop",
                hint="Open one in each loop, or use stratalog.sync from threads.",
            )

    async def wait_until_settled(self) -> None:
        """Wait for what was submitted before this call. Settling keeps the order of the calls."""
        last = self._accumulator.last
        if last is None and self.units.last is not None:
            last = self.units.last.submissions[-1]
        if last is None:
            return
        if not last.future.done():
            await asyncio.wait([last.future])
        if last.future.cancelled():
            await self._group_commit.wait_until_idle()

    async def close(self) -> None:
        """Settle what was submitted and take no more, then end the tasks."""
        if self._accumulator.refusal is None:
            self._accumulator.refusal = Closed("this writer is closed")
        await self._group_commit.wait_until_idle()
        if self._timer is not None:
            self._timer.cancel()
        await self._group_commit.close()

    def _dispatch(self) -> None:
        former, group_commit = self._former, self._group_commit
        now_s = asyncio.get_running_loop().time()
        former.pace.returned(now_s, with_more=bool(self._accumulator))
        while not group_commit.stopped and not group_commit.refusing:
            first = self._accumulator.first
            if first is None or not former.may_start(self._uploading):
                break
            if not former.fits(first):
                if not self.units:
                    group_commit.refuse_conditional()
                break
            wait_s = former.wait_s()
            if wait_s > 0:
                if self._timer is None:
                    self._timer = self._loop.call_later(wait_s, self._ring)
                break
            unit = former.form()
            self.units.add(unit)
            unit.task = group_commit.spawn(self._upload(unit))
        group_commit.notify_if_idle()

    def _ring(self) -> None:
        self._timer = None
        self._dispatch()

    async def _upload(self, unit: Unit) -> None:
        self._uploading += 1
        try:
            if len(unit.drafts) == 1:
                await self._group_commit.upload(unit.drafts[0], unit.timestamp_us)
            else:
                async with asyncio.TaskGroup() as group:
                    for draft in unit.drafts:
                        group.create_task(self._group_commit.upload(draft, unit.timestamp_us))
            unit.ready = True
        except* StratalogError as errors:
            unit.error = _first(errors)
        finally:
            # Also when it was cancelled: what waits may be waiting for this upload to end.
            self._uploading -= 1
            self._wakeup.wake()
        self._group_commit.commit_ready()


def _first(group: ExceptionGroup[StratalogError]) -> StratalogError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, StratalogError)
    return error
