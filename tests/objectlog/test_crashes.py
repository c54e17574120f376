"""Behaviour 4: a crash before or after every single store operation.

A scripted run is counted once, then repeated once for each of its operations and each side of
it. After each crash a new writer opens with no action, and the log must explain all that was heard.
Exhaustive in memory, sampled on the other stores.
"""

from __future__ import annotations

import asyncio
import uuid
from random import Random

import pytest

import stratalog as sl
from objectlog.crashing import CrashPoint, Script, When, crash_at_each, run_until_crash, sides_of
from objectlog.whole_log import check_whole_log, depth_of, orphans, run, sweep
from objectlog.wrapped_stores import Puts, RecordingStore
from stratalog.store import MemoryStore
from stratalog.testing import Append, History, Placed, StoreCall, check_appends

OPTIONS = sl.WriterOptions(
    fragment_bytes=100, rollup_entries=2, snapshot_entries_max=3, on_fenced="raise"
)


async def append(log: sl.LogWriter, history: History, *bodies: bytes) -> None:
    number = history.call("process", Append(bodies))
    if len(bodies) == 1:
        position = await log.append(bodies[0])
    else:
        position = (await log.append_many(bodies)).first
    history.ok(number, Placed(position.offset, position.timestamp_us))


async def one_after_the_other(store: sl.Store, history: History) -> None:
    """Create, append, a batch over several fragments, roll up at two levels, reopen, go on."""
    await sl.create_log(store)
    async with sl.LogWriter.open(store, options=OPTIONS) as log:
        await append(log, history, b"one")
        await append(log, history, *(b"batch-%d" % i * 10 for i in range(4)))
        for number in range(7):
            await append(log, history, b"first-%d" % number)
    async with sl.LogWriter.open(store, create=True, options=OPTIONS) as log:
        for number in range(3):
            await append(log, history, b"second-%d" % number)


async def side_by_side(store: sl.Store, history: History) -> None:
    """Open with ``create``, then several uploads in flight under group-committed manifests."""
    async with sl.LogWriter.open(store, create=True, options=OPTIONS) as log:

        async def appender(name: int) -> None:
            for number in range(3):
                await append(log, history, b"%d-%d-" % (name, number) + b"." * 60)
            await append(log, history, *(b"%d-batch-%d" % (name, i) * 8 for i in range(3)))

        await asyncio.gather(*(appender(name) for name in range(4)))


async def recover(store: sl.Store, history: History, puts: Puts) -> None:
    """A new writer opens with no action; everything acknowledged is there once; appends go on."""
    recording = RecordingStore(store, puts)
    async with sl.LogWriter.open(recording, create=True, options=OPTIONS) as log:
        await append(log, history, b"after the crash")
        await append(log, history, b"and", b"more")
    check_appends(history, await check_whole_log(store))
    puts.check_names_were_used_once()
    left = {path for path in await orphans(store) if not path.startswith("probe/")}
    assert left == await sweep(store), "orphans are exactly what a sweep removes"
    check_appends(history, await check_whole_log(store))
    async with sl.LogWriter.open(recording, options=OPTIONS) as log:
        await append(log, history, b"after the sweep")
    check_appends(history, await check_whole_log(store))


def crash_and_recover(store: sl.Store, script: Script, point: CrashPoint) -> None:
    history, puts = History(), Puts()
    run_until_crash(store, script, point, history, puts)
    run(recover(store, history, puts))


def operations_of(script: Script) -> list[StoreCall]:
    """What the script asks of its store when nothing goes wrong."""
    store = MemoryStore(uuid.uuid4().hex)
    history = History()
    operations = run_until_crash(store, script, None, history, Puts())
    assert all(operation.outcome == "ok" for operation in history.operations)
    if script is one_after_the_other:
        assert run(depth_of(store)) >= 2, "the script does not roll up twice"
    return operations


def points_of(script: Script) -> list[CrashPoint]:
    return sides_of(operations_of(script))


def check_every_point(script: Script, points: list[CrashPoint]) -> None:
    crash_at_each(
        points, lambda point: crash_and_recover(MemoryStore(uuid.uuid4().hex), script, point)
    )


class TestBehaviour04Crashes:
    def test_the_script_has_every_kind_of_write(self) -> None:
        operations = operations_of(one_after_the_other)
        asked = {(call.name, call.path.partition("/")[0]) for call in operations}
        assert {
            ("put_if_absent", "manifest"),
            ("put_if_absent", "log"),
            ("put_if_absent", "snapshot"),
            ("put_if_match", "manifest"),
            ("put_if_absent", "probe"),
            ("get", "manifest"),
        } <= asked

    def test_at_every_operation_of_a_quiet_run(self) -> None:
        points = points_of(one_after_the_other)
        assert len(points) > 60
        check_every_point(one_after_the_other, points)

    def test_at_every_operation_of_a_busy_run(self) -> None:
        """Here more than one request may be under way when the process dies."""
        points = points_of(side_by_side)
        assert len(points) > 40
        check_every_point(side_by_side, points)

    @pytest.mark.parametrize("script", [one_after_the_other, side_by_side])
    def test_at_sampled_operations_on_every_store(self, store_url: str, script: Script) -> None:
        fewest = 20
        count = 5 if store_url.startswith("s3") else 8
        points = Random(f"{store_url[:3]}-{script.__name__}").sample(range(2, fewest), count)
        for index, number in enumerate(sorted(points)):
            when: When = "before" if index % 2 else "after"
            store = sl.open_store(f"{store_url}/{number}")
            crash_and_recover(store, script, CrashPoint(number, when))

    def test_many_lives_in_a_row_on_one_log(self, store_url: str) -> None:
        """Each life dies somewhere; what all of them were told holds to the end."""
        lives = 6 if store_url.startswith("s3") else 12
        store = sl.open_store(store_url)
        run(sl.create_log(store))
        history, puts = History(), Puts()
        for life in range(lives):

            async def script(store: sl.Store, history: History, life: int = life) -> None:
                options = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=3)
                async with sl.LogWriter.open(store, options=options) as log:
                    for number in range(40):
                        await append(log, history, b"life-%d-%d" % (life, number))

            when: When = "before" if life % 2 else "after"
            point = CrashPoint(Random(life).randrange(2, 20), when)
            run_until_crash(store, script, point, history, puts)
            check_appends(history, run(check_whole_log(store)))
        puts.check_names_were_used_once()
