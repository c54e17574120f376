"""Killing a scripted life before or after one of its store operations."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Literal, NamedTuple

import stratalog as sl
from objectlog.whole_log import run
from objectlog.wrapped_stores import Puts, RecordingStore
from stratalog import runtime
from stratalog.errors import StratalogError
from stratalog.testing import Crashed, Faults, FaultyStore, History, StoreCall

When = Literal["before", "after"]
Script = Callable[[sl.Store, History], Awaitable[None]]


class CrashPoint(NamedTuple):
    number: int
    when: When


def run_until_crash(
    store: sl.Store, script: Script, point: CrashPoint | None, history: History, puts: Puts
) -> list[StoreCall]:
    """One life of a process. What it had sent when it died may land, or not.

    A roll-up that closing cuts off is never answered, so a few lives end before they crash.
    """
    faulty = FaultyStore(
        RecordingStore(store, puts), Faults(late_s=(0.0, 0.0)), random=Random(str(point))
    )

    async def main() -> None:
        if point is not None:
            faulty.crash_at(*point)
        life = asyncio.ensure_future(script(faulty, history))

        def die() -> None:
            life.cancel()

        faulty.on_crash(die)
        try:
            await life
        except (Crashed, asyncio.CancelledError, StratalogError):
            assert faulty.crashed, "it failed without a crash"
        await faulty.settle()

    run(main())
    let_requests_arrive()
    assert point is not None or not faulty.crashed
    return faulty.operations


def let_requests_arrive() -> None:
    """A blocking call goes on when its process "dies", because the test's process lives."""
    pool = runtime._pools.pop(("io", os.getpid()), None)
    if pool is not None:
        pool.shutdown(wait=True)


def sides_of(operations: Sequence[StoreCall]) -> list[CrashPoint]:
    """Before and after each of these operations."""
    sides: tuple[When, When] = ("before", "after")
    return [CrashPoint(call.number, when) for call in operations for when in sides]


def crash_at_each(points: Sequence[CrashPoint], crash: Callable[[CrashPoint], object]) -> None:
    """Crash at each of these points. A failure names the one that it was."""
    for point in points:
        try:
            crash(point)
        except BaseException as error:
            error.add_note(f"crashed {point.when} operation {point.number}")
            raise
