"""Bugs on purpose in the marks and roll-ups of a herd, each in one named way, from outside.

The checks are only worth something if they notice these. Nothing here is shipped. All of them make
the herd forget a log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from simulation.planting import plant
from stratalog.errors import StratalogError
from stratalog.herd import dirty_mark as mark_module
from stratalog.herd import rollup as rollup_module
from stratalog.herd.dirty_log import Marker
from stratalog.herd.dirty_mark import Mark, together
from stratalog.herd.names import SIDES
from stratalog.herd.rollup import _Looked, _RollUp, _Taken
from stratalog.objectlog.append import uploader as uploader_module


@contextmanager
def mark_not_waited_for() -> Iterator[None]:
    """A fragment is linked although its mark may never be stored."""

    async def hasty(storing: Coroutine[Any, Any, str], beside: Awaitable[None]) -> str:
        marking = asyncio.ensure_future(beside)
        marking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await storing

    with plant(uploader_module, "_both", hasty):
        yield


@contextmanager
def failed_mark_ignored() -> Iterator[None]:
    """An append goes on although no dirty log took its mark."""
    mark = Marker.mark

    async def careless(self: Marker, marks: Sequence[Mark]) -> None:
        try:
            await mark(self, marks)
        except StratalogError:
            return

    with plant(Marker, "mark", careless):
        yield


@contextmanager
def cursors_moved_before_the_marks_are_put_back() -> Iterator[None]:
    """A roll-up that dies in between has dropped what it had read."""
    taken = _RollUp._taken

    async def early(self: _RollUp) -> Any:
        async for each in taken(self):
            await self._move(each)
            yield each

    with plant(_RollUp, "_taken", early):
        yield


@contextmanager
def marks_of_the_unlinked_dropped_without_the_epoch() -> Iterator[None]:
    """A mark goes because its records are not there, and then they are linked."""

    def hasty(self: Mark, *, tail: int, sweep_epoch: int, compacted_upto: int) -> bool:
        del sweep_epoch
        return compacted_upto >= self.end or compacted_upto >= tail

    with plant(Mark, "may_go", hasty):
        yield


@contextmanager
def unreadable_log_loses_its_mark() -> Iterator[None]:
    """A log that does not answer is taken for a clean one."""

    async def hasty(self: _RollUp, marks: Iterable[Mark]) -> _Looked:
        try:
            return await self._judged(together(marks))
        except StratalogError:
            return _Looked()

    with plant(_RollUp, "_look", hasty):
        yield


@contextmanager
def only_the_first_dirty_log_is_read() -> Iterator[None]:
    """What a server wrote into its second one is overlooked."""
    with plant(rollup_module, "SIDES", SIDES[:1]):
        yield


@contextmanager
def cursor_moved_past_what_was_read() -> Iterator[None]:
    """Marks that came while a roll-up was under way are skipped."""
    move = _RollUp._move

    async def too_far(self: _RollUp, taken: _Taken) -> None:
        await move(
            self, rollup_module._Taken(taken.store, taken.marks, taken.cursor, taken.limit + 1)
        )

    with plant(_RollUp, "_move", too_far):
        yield


@contextmanager
def several_marks_become_the_lowest() -> Iterator[None]:
    """Of the marks of a log the one that is done with first is kept."""

    def lowest(marks: Iterable[Mark]) -> Mark:
        several = [*marks]
        end = min(each.end for each in several)
        return msgspec.structs.replace(mark_module.together(several), end=end)

    with plant(rollup_module, "together", lowest):
        yield


PLANTED = (
    mark_not_waited_for,
    failed_mark_ignored,
    cursors_moved_before_the_marks_are_put_back,
    marks_of_the_unlinked_dropped_without_the_epoch,
    unreadable_log_loses_its_mark,
    only_the_first_dirty_log_is_read,
    cursor_moved_past_what_was_read,
    several_marks_become_the_lowest,
)
