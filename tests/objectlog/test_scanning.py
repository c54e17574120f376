"""Behaviours 11 and 12: limits of a scan, and seeking by timestamp, against brute force."""

from __future__ import annotations

import asyncio
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stratalog as sl
from objectlog.whole_log import FakeClock, collect_roots, run, walk
from objectlog.wrapped_stores import CountingStore
from stratalog.errors import Closed, Invalid, Trimmed
from stratalog.store import MemoryStore
from stratalog.testing import Row

SHAPES = 10


async def grow(store: sl.Store, seed: int, appends: int) -> None:
    """A log with a tree, batches and times of its own; some clocks stand still or jump."""
    random = Random(seed)
    clock = FakeClock()
    options = sl.WriterOptions(
        rollup_entries=random.choice((2, 2, 3)),
        snapshot_entries_max=random.choice((3, 4, 8)),
        fragment_bytes=random.choice((60, 200, 2_000)),
    )
    async with sl.LogWriter.open(store, create=True, options=options, runtime=clock) as log:
        for number in range(appends):
            clock.time_us += random.choice((0, 0, 1, 1, 7, 100))
            count = random.choice((1, 1, 2, 5, 9))
            await log.append_many(
                [b"%d.%d" % (number, i) * random.randrange(9) for i in range(count)]
            )
    if seed % 3 == 2:
        await collect_roots(store, 1)


class Model:
    """The whole log as flat lists."""

    def __init__(self, store: sl.Store, fragments: list[sl.Fragment], rows: list[Row]) -> None:
        self.store = store
        self.fragments = fragments
        self.rows = rows
        self.first, self.tail = rows[0][0], rows[-1][0] + 1

    @classmethod
    async def of(cls, store: sl.Store) -> Model:
        fragments = [e async for e in walk(store) if isinstance(e, sl.Fragment)]
        fragments.sort(key=lambda each: each.start.offset)
        async with sl.LogReader.open(store) as reader:
            rows = []
            for fragment in fragments:
                batch = await reader.fetch(fragment)
                rows += list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        return cls(store, fragments, rows)

    def scan(
        self, from_offset: int, limits: sl.Limits, from_timestamp_us: int | None
    ) -> list[sl.Fragment]:
        found: list[sl.Fragment] = []
        for each in self.fragments:
            if each.limit.offset <= from_offset:
                continue
            if from_timestamp_us is not None and each.limit.timestamp_us < from_timestamp_us:
                continue
            if limits.to_offset is not None and each.start.offset >= limits.to_offset:
                continue
            to_us = limits.to_timestamp_us
            if to_us is not None and each.start.timestamp_us >= to_us:
                continue
            candidate = [*found, each]
            too_much = (
                (limits.max_files or len(candidate)) < len(candidate)
                or (limits.max_bytes or 10**9) < sum(f.num_bytes for f in candidate)
                or (limits.max_records or 10**9) < sum(f.count for f in candidate)
            )
            if found and too_much:
                break
            found = candidate
        return found

    def select(
        self,
        from_offset: int,
        to_offset: int | None,
        from_timestamp_us: int | None,
        to_timestamp_us: int | None,
    ) -> list[Row]:
        return [
            row
            for row in self.rows
            if row[0] >= from_offset
            and (to_offset is None or row[0] < to_offset)
            and (from_timestamp_us is None or row[1] >= from_timestamp_us)
            and (to_timestamp_us is None or row[1] < to_timestamp_us)
        ]


@cache
def model(shape: int) -> Model:
    async def main() -> Model:
        store = MemoryStore(f"shape-{shape}")
        await grow(store, shape, 10 + 4 * shape)
        return await Model.of(store)

    return run(main())


def optional(low: int, high: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(low, high)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Model, int, int | None, sl.Limits]:
    log = model(draw(st.integers(0, SHAPES - 1)))
    times = (log.rows[0][1] - 3, log.rows[-1][1] + 3)
    size = sum(each.num_bytes for each in log.fragments)
    limits = sl.Limits(
        max_files=draw(optional(1, 8)),
        max_bytes=draw(optional(1, size)),
        max_records=draw(optional(1, len(log.rows) + 2)),
        to_offset=draw(optional(1, log.tail + 3)),
        to_timestamp_us=draw(optional(*times)),
    )
    return log, draw(st.integers(log.first, log.tail + 3)), draw(optional(*times)), limits


class TestBehaviour11Limits:
    @settings(max_examples=200, deadline=None)
    @given(questions())
    def test_a_scan_gives_what_brute_force_gives(
        self, question: tuple[Model, int, int | None, sl.Limits]
    ) -> None:
        log, from_offset, from_timestamp_us, limits = question

        async def main() -> None:
            async with sl.LogReader.open(log.store) as reader:
                found = await reader.scan(
                    from_offset, limits=limits, from_timestamp_us=from_timestamp_us
                )
                assert found == log.scan(from_offset, limits, from_timestamp_us)
                rows = [
                    (record.offset, record.timestamp_us, record.body)
                    async for record in reader.records(
                        from_offset, limits.to_offset, from_timestamp_us, limits.to_timestamp_us
                    )
                ]
                assert rows == log.select(
                    from_offset, limits.to_offset, from_timestamp_us, limits.to_timestamp_us
                )

        run(main())

    def test_the_shapes_differ_and_have_depth(self) -> None:
        async def depth(log: Model) -> int:
            async with sl.LogReader.open(log.store) as reader:
                return max(pointer.depth for pointer in reader.manifest.snapshots)

        depths = [run(depth(model(shape))) for shape in range(SHAPES)]
        assert max(depths) >= 3
        assert len(set(depths)) > 1

    def test_limits_hold_on_every_store(self, store_url: str) -> None:
        async def main() -> None:
            store = sl.open_store(store_url)
            await grow(store, 4, 20)
            log = await Model.of(store)
            random = Random(5)
            size = sum(each.num_bytes for each in log.fragments)
            async with sl.LogReader.open(store) as reader:
                for _ in range(60):
                    limits = sl.Limits(
                        max_files=random.choice((None, random.randrange(1, 9))),
                        max_bytes=random.choice((None, random.randrange(1, size))),
                        max_records=random.choice((None, random.randrange(1, 50))),
                        to_offset=random.choice((None, random.randrange(1, log.tail + 2))),
                    )
                    from_offset = random.randrange(1, log.tail + 2)
                    found = await reader.scan(from_offset, limits=limits)
                    assert found == log.scan(from_offset, limits, None)

        run(main())

    @pytest.mark.parametrize(
        "limits",
        [sl.Limits(max_bytes=1), sl.Limits(max_records=1), sl.Limits(max_files=1)],
    )
    def test_at_least_one_fragment_comes_back_when_there_is_data(
        self, store_url: str, limits: sl.Limits
    ) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                for number in range(3):
                    await log.append_many([b"%d" % number * 100] * 5)
            async with sl.LogReader.open(store_url) as reader:
                for offset in range(1, 16):
                    [found] = await reader.scan(offset, limits=limits)
                    assert found.start.offset <= offset < found.limit.offset
                assert await reader.scan(16, limits=limits) == []

        run(main())

    def test_a_limit_of_nothing_is_refused(self) -> None:
        for name in ("max_files", "max_bytes", "max_records"):
            with pytest.raises(Invalid):
                sl.Limits(**{name: 0})

    def test_a_scan_descends_only_where_it_must(self) -> None:
        async def main() -> None:
            honest = MemoryStore()
            options = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=2)
            async with sl.LogWriter.open(honest, create=True, options=options) as log:
                for number in range(64):
                    await log.append(b"%d" % number)
            store = CountingStore(honest)
            async with sl.LogReader.open(store) as reader:
                depth = max(pointer.depth for pointer in reader.manifest.snapshots)
                assert depth >= 3
                for offset in (1, 17, 40):
                    store.reset()
                    fresh = await sl.LogReader.open(store)
                    [found] = await fresh.scan(offset, limits=sl.Limits(max_files=1))
                    assert found.start.offset == offset
                    assert store.reads <= 1 + depth
                store.reset()
                bounded = sl.Limits(to_offset=19)
                fresh = await sl.LogReader.open(store)
                assert len(await fresh.scan(17, limits=bounded)) == 2
                assert store.reads <= 1 + 2 * depth

        run(main())

    def test_offsets_outside_of_the_log(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                for number in range(4):
                    await log.append(b"%d" % number)
            assert await collect_roots(store_url, 2) == 3
            async with sl.LogReader.open(store_url) as reader:
                for wrong in (0, -1):
                    with pytest.raises(Invalid):
                        await reader.scan(wrong)
                with pytest.raises(Trimmed) as caught:
                    await reader.scan(2)
                assert caught.value.first_offset == 3
                assert len(await reader.scan(3)) == 2
                assert await reader.scan(5) == []
                assert await reader.scan(5_000) == []
                assert [row.offset async for row in reader.records(4, 400)] == [4]
                table = await reader.to_arrow(3)
                assert table.column("offset").to_pylist() == [3, 4]

        run(main())

    def test_a_reader_shows_one_manifest_until_it_is_refreshed(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                await log.append(b"one")
                async with sl.LogReader.open(store_url) as reader:
                    await log.append(b"two")
                    assert reader.tail == 2
                    assert [row.body async for row in reader.records()] == [b"one"]
                    await reader.refresh()
                    assert reader.tail == 3
                    assert [row.body async for row in reader.records()] == [b"one", b"two"]

        run(main())

    def test_an_iteration_that_is_left_early_leaves_nothing_behind(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                for number in range(30):
                    await log.append(b"%d" % number)
            async with sl.LogReader.open(store_url) as reader:
                batches = reader.batches()
                assert (await anext(batches)).num_rows == 1
                await batches.aclose()
                records = reader.records(5)
                assert (await anext(records)).offset == 5
                await records.aclose()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert not others
            with pytest.raises(Closed):
                await reader.fetch((await sl.LogReader.open(store_url)).manifest.fragments[0])

        run(main())

    def test_reading_ahead_stays_within_its_bounds(self) -> None:
        async def main() -> None:
            honest = MemoryStore()
            async with sl.LogWriter.open(honest, create=True) as log:
                for number in range(40):
                    await log.append(b"%d" % number)
            store = CountingStore(honest)
            options = sl.ReaderOptions(prefetch_fragments=3, cache_bytes=0)
            async with sl.LogReader.open(store, options=options) as reader:
                store.reset()
                seen = 0
                async for batch in reader.batches():
                    seen += batch.num_rows
                    read = sum(path.startswith("log/") for path in store.paths_read)
                    assert read <= seen + 3
                assert seen == 40

        run(main())


class TestBehaviour12Timestamps:
    def test_the_first_record_at_or_after_a_time(self, store_url: str) -> None:
        async def main() -> None:
            store = sl.open_store(store_url)
            await grow(store, 7, 14)
            log = await Model.of(store)
            times = sorted({at_us for _, at_us, _ in log.rows})
            wanted = {t + d for t in times for d in (-1, 0, 1)}
            async with sl.LogReader.open(store) as reader:
                for time_us in sorted(wanted):
                    expected = next((row for row in log.rows if row[1] >= time_us), None)
                    found = None
                    async for record in reader.records(from_timestamp_us=time_us):
                        found = (record.offset, record.timestamp_us, record.body)
                        break
                    assert found == expected
                    fragments = await reader.scan(
                        from_timestamp_us=time_us, limits=sl.Limits(max_files=1)
                    )
                    if expected is None:
                        assert fragments == []
                    else:
                        assert fragments[0].start.offset == expected[0]

        run(main(), 120)

    def test_a_time_before_the_log_gives_its_first_record_also_after_collection(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            clock = FakeClock(1_000)
            async with sl.LogWriter.open(store_url, create=True, runtime=clock) as log:
                for number in range(6):
                    clock.time_us += 10
                    await log.append(b"%d" % number)
            first = await collect_roots(store_url, 3)
            async with sl.LogReader.open(store_url) as reader:
                found = [row.offset async for row in reader.records(from_timestamp_us=1)]
                assert found == [first, first + 1, first + 2]
                found = [row.offset async for row in reader.records(from_timestamp_us=1_060)]
                assert found == [6]
                found = [row.offset async for row in reader.records(from_timestamp_us=1_061)]
                assert found == []

        run(main())

    def test_offset_and_time_may_be_combined(self, store_url: str) -> None:
        async def main() -> None:
            clock = FakeClock(1_000)
            async with sl.LogWriter.open(store_url, create=True, runtime=clock) as log:
                for number in range(6):
                    clock.time_us += 10
                    await log.append_many([b"%d" % number] * 2)
            async with sl.LogReader.open(store_url) as reader:
                found = [
                    row.offset
                    async for row in reader.records(
                        from_offset=6, to_offset=10, from_timestamp_us=1_020, to_timestamp_us=1_050
                    )
                ]
                assert found == [6, 7, 8]

        run(main())
