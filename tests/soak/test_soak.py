"""A soak proves a good log, and names what is broken in a bad one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import stratalog as sl
from objectlog.whole_log import check_whole_log, run
from soak.described import RUN, TIME_US, batch, records
from soak.simulated import soaked
from stratalog.errors import Exists, Invalid, NotHappened
from stratalog.objectlog.branch.fork_log import fork
from stratalog.objectlog.holds.cursor import Cursor
from stratalog.objectlog.read.reader import LogReader
from stratalog.objectlog.stored.manifest import load_manifest
from stratalog.objectlog.stored.self_describing import decode_described
from stratalog.soak import Figures, OpenWriter, SoakOptions, SoakReport, SoakWriter, soak
from stratalog.soak import chores as chores_module
from stratalog.soak.ledger import Ledger
from stratalog.soak.writers import Supply
from stratalog.store import MemoryStore
from stratalog.store.protocol import Store
from stratalog.testing import Faults, Simulation, simulate

ROUGH = Faults(
    request_s=(0.0, 0.03),
    answer_s=(0.0, 0.03),
    put_error=0.01,
    lost_answer=0.02,
    late_landing=0.01,
    echoed_refusal=0.01,
    false_refusal=0.01,
    read_error=0.01,
)

SLOW = Faults(request_s=(0.0, 0.05), answer_s=(0.0, 0.05))


def rules(report: SoakReport) -> set[str]:
    return {violation.rule for violation in report.violations}


# A good log


@pytest.mark.parametrize("seed", range(2))
def test_a_good_log_is_proven_through_faults_kills_and_chores(seed: int) -> None:
    report = soaked(seed, faults=ROUGH, duration_s=40.0)
    figures = report.figures
    assert report.proven, report.violations
    assert figures.called == figures.acknowledged + figures.failed + figures.unknown
    assert figures.read == figures.acknowledged + figures.landed
    assert figures.acknowledged > 200
    assert figures.lag == 0
    for done in ("killed", "collections", "collected", "sweeps", "pins", "forks", "side_reads"):
        assert getattr(figures, done) > 0, done


def test_the_same_seed_gives_the_same_soak() -> None:
    assert soaked(5, faults=ROUGH, duration_s=10.0) == soaked(5, faults=ROUGH, duration_s=10.0)


def test_the_memory_is_that_of_what_is_under_way() -> None:
    seen: list[Figures] = []
    report = soaked(1, on_progress=seen.append)
    assert report.proven
    assert report.figures.acknowledged > 10 * max(each.remembered for each in seen)
    assert report.figures.remembered <= report.figures.killed * SoakOptions().callers


def test_nothing_becomes_due_while_the_reader_is_too_far_behind() -> None:
    async def scenario(simulation: Simulation) -> None:
        ledger = Ledger(RUN, 1, alone=True)
        supply = Supply(SoakOptions(rate=100.0, lag_max=50), ledger, simulation.runtime)
        stopping = asyncio.Event()
        filling = asyncio.ensure_future(supply.fill(stopping))
        writer = ledger.open_writer()
        ledger.acknowledge(ledger.call(writer, 50), 1, TIME_US)
        await asyncio.sleep(30.0)
        assert supply.take() == 0
        ledger.see(batch(1, records(writer, range(50))))
        await asyncio.sleep(30.0)
        assert supply.take() > 0
        stopping.set()
        await filling

    simulate(scenario, 1)


def test_a_soak_leaves_a_log_without_cursors_and_pins() -> None:
    async def scenario() -> None:
        url = "memory://soak-leaves"
        options = SoakOptions(rate=300.0, duration_s=2.0, chore_s=0.2, life_s=0.5)
        report = await soak(url, options=options)
        assert report.proven, report.violations
        assert report.figures.forks > 0
        await check_whole_log(url)
        assert await sl.CursorStore(url).list() == []
        assert [row async for row in sl.open_store(url).list("pin/") if row.size > 2000] == []

    run(scenario())


def test_a_log_that_exists_is_refused_and_with_force_shared_and_not_collected() -> None:
    async def scenario() -> None:
        url = "memory://soak-shared"
        async with sl.LogWriter.open(url, create=True) as log:
            await log.append_many([b"mine", b"also mine"])
        options = SoakOptions(rate=300.0, duration_s=1.0, chore_s=0.1)
        with pytest.raises(Exists):
            await soak(url, options=options)
        forced = SoakOptions(rate=300.0, duration_s=1.0, chore_s=0.1, force=True)
        first = await soak(url, options=forced)
        assert first.proven, first.violations
        assert (first.figures.collections, first.figures.collected) == (0, 0)
        again = await soak(url, options=forced)
        assert again.proven, again.violations
        rows = await check_whole_log(url)
        assert [body for _, _, body in rows[:2]] == [b"mine", b"also mine"]
        total = first.figures.read + again.figures.read
        assert len(rows) == 2 + total

    run(scenario())


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0},
        {"duration_s": 0},
        {"writers": 0},
        {"callers": 0},
        {"record_bytes": 35},
        {"life_s": 0},
        {"chore_s": 0},
        {"lag_max": 0},
        {"drain_timeout_s": 0},
    ],
    ids=str,
)
def test_an_illegal_option_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        SoakOptions(**wrong)


# A bad log: writers that break their word


class BrokenWriter:
    """A writer that does something else with every third append of more than one record."""

    def __init__(self, good: SoakWriter) -> None:
        self.good = good
        self.appends = 0

    async def append(self, bodies: Sequence[bytes]) -> sl.LogPosition:
        self.appends += len(bodies) > 1
        if len(bodies) > 1 and self.appends % 3 == 0:
            return await self.break_word(bodies)
        return await self.good.append(bodies)

    async def break_word(self, bodies: Sequence[bytes]) -> sl.LogPosition:
        raise NotImplementedError

    async def close(self) -> None:
        await self.good.close()

    async def kill(self) -> None:
        await self.good.kill()


class Losing(BrokenWriter):
    """Acknowledges the last record without writing it."""

    async def break_word(self, bodies: Sequence[bytes]) -> sl.LogPosition:
        return await self.good.append(bodies[:-1])


class Doubling(BrokenWriter):
    """Writes everything twice."""

    async def break_word(self, bodies: Sequence[bytes]) -> sl.LogPosition:
        position = await self.good.append(bodies)
        await self.good.append(bodies)
        return position


class Reordering(BrokenWriter):
    """Writes the records the other way round."""

    async def break_word(self, bodies: Sequence[bytes]) -> sl.LogPosition:
        return await self.good.append(bodies[::-1])


class Tearing(BrokenWriter):
    """Writes a batch in two parts, with time for others in between."""

    async def break_word(self, bodies: Sequence[bytes]) -> sl.LogPosition:
        position = await self.good.append(bodies[:1])
        await asyncio.sleep(1.0)
        await self.good.append(bodies[1:])
        await asyncio.sleep(1.0)  # so that all of it is read before it is acknowledged
        return position


class Denying(BrokenWriter):
    """Says that an append did not happen which did."""

    async def break_word(self, bodies: Sequence[bytes]) -> sl.LogPosition:
        await self.good.append(bodies)
        raise NotHappened("it did not happen")


class Misplacing(BrokenWriter):
    """Acknowledges another position than the one where it is."""

    async def break_word(self, bodies: Sequence[bytes]) -> sl.LogPosition:
        position = await self.good.append(bodies)
        return sl.LogPosition(position.offset + 1, position.timestamp_us)


class Altering(BrokenWriter):
    """Writes a record that is not the one it was given."""

    async def break_word(self, bodies: Sequence[bytes]) -> sl.LogPosition:
        return await self.good.append([*bodies[:-1], bodies[-1][:-1] + b"?"])


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Losing, "lost"),
        (Doubling, "once"),
        (Reordering, "order"),
        (Tearing, "atomic"),
        (Denying, "not-happened"),
        (Misplacing, "position"),
        (Altering, "changed"),
    ],
)
def test_a_writer_that_breaks_its_word_is_found_out(broken: type[BrokenWriter], rule: str) -> None:
    def breaking(opening: OpenWriter, _: Store) -> OpenWriter:
        async def open_writer(name: str, options: sl.WriterOptions) -> SoakWriter:
            return broken(await opening(name, options))

        return open_writer

    report = soaked(3, breaking=breaking, faults=SLOW, rate=200.0)
    assert not report.proven
    assert rule in rules(report), report.violations
    assert report.figures.elapsed_s < 30.0, "it ends when enough is known"


def test_records_that_nobody_of_the_soak_wrote_are_found_in_its_own_log() -> None:
    def breaking(opening: OpenWriter, store: Store) -> OpenWriter:
        async def open_writer(name: str, options: sl.WriterOptions) -> SoakWriter:
            writer = await opening(name, options)
            await writer.append([b"an intruder"])
            return writer

        return open_writer

    assert rules(soaked(3, breaking=breaking)) == {"origin"}


# A bad log: what is read is not what is there


def lose_a_row(good: pa.RecordBatch) -> pa.RecordBatch:
    return good.slice(1)


def double_a_row(good: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([good.slice(0, 1), good])


def swap_rows(good: pa.RecordBatch) -> pa.RecordBatch:
    return good.take(pa.array([1, 0, *range(2, good.num_rows)]))


def swap_bodies(good: pa.RecordBatch) -> pa.RecordBatch:
    bodies = good.column(2).to_pylist()
    bodies[:2] = bodies[1::-1]
    columns = [good.column(0), good.column(1), pa.array(bodies, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=good.schema)


@pytest.mark.parametrize(
    ("breaking", "rule"),
    [
        (lose_a_row, "lost"),
        (double_a_row, "once"),
        (swap_rows, "dense"),
        (swap_bodies, "order"),
    ],
)
def test_a_reader_that_loses_doubles_or_reorders_is_found_out(
    breaking: Any, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = LogReader.follow

    async def broken(self: LogReader, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        given = 0
        async for good in honest(self, *args, **kwargs):
            given += 1
            bodies = good.column(2).to_pylist()[:2]
            writers = [found.writer for found in map(decode_described, bodies) if found]
            of_one_writer = len(writers) == 2 and writers[0] == writers[1]
            yield breaking(good) if given > 5 and of_one_writer else good

    monkeypatch.setattr(LogReader, "follow", broken)
    report = soaked(4, faults=SLOW, rate=200.0)
    assert rule in rules(report), report.violations


def test_a_pin_that_does_not_hold_what_it_should_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = LogReader.batches

    async def broken(self: LogReader, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        pinned = self._load is not load_manifest
        async for good in honest(self, *args, **kwargs):
            yield swap_bodies(good) if pinned and good.num_rows > 1 else good

    monkeypatch.setattr(LogReader, "batches", broken)
    assert rules(soaked(4, faults=SLOW, rate=200.0)) == {"pin"}


def test_a_fork_at_another_place_than_asked_for_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(source: Store, target: Store, *, at: int, runtime: Any) -> object:
        return await fork(source, target, at=at - 1, runtime=runtime)

    monkeypatch.setattr(chores_module, "fork", broken)
    assert rules(soaked(4, chore_s=1.0)) == {"fork"}


def test_a_collection_that_does_not_wait_for_the_reader_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Cursor.move

    async def too_far(self: Cursor, offset: int) -> Cursor:
        manifest, _ = await load_manifest(self._cursors._store)
        return await honest(self, min(offset + 100, manifest.tail.offset))

    monkeypatch.setattr(Cursor, "move", too_far)
    report = soaked(4, rate=200.0, chore_s=0.5)
    assert "held" in rules(report), report.violations


def test_a_reader_that_opens_on_an_old_tail_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stale(LogReader):
        @property
        def tail(self) -> int:
            return super().tail - 5

    monkeypatch.setattr(chores_module, "LogReader", Stale)
    assert "tail" in rules(soaked(4, rate=100.0, chore_s=1.0))


def test_an_error_of_a_chore_that_nothing_explains_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise Invalid("this should not be")

    monkeypatch.setattr(chores_module, "sweep", broken)
    report = soaked(4)
    assert rules(report) == {"chore"}
    assert "this should not be" in report.violations[0].detail


def test_damage_of_what_is_stored_is_found_at_the_end() -> None:
    store = MemoryStore()

    def damage(figures: Figures) -> None:
        """A fragment that was read long ago disappears."""
        if figures.elapsed_s > 10.0:
            path = min(path for path in store._objects if path.startswith("log/log/"))
            del store._objects[path]

    report = soaked(4, store=store, on_progress=damage, duration_s=11.0, chore_s=100.0)
    assert rules(report) == {"stored"}
    assert "structure" in report.violations[0].detail
