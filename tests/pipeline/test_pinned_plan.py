"""Planning a read: the fragments of a window, held by a pin before they are planned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import stratalog as sl
from objectlog.trees import LEAF
from objectlog.wal3_logs import Wal3Log
from objectlog.whole_log import run
from objectlog.wrapped_stores import PassingStore
from pipeline.spark_logs import AT_ONCE, RECORDS, fill, fill_herd, rows_in
from stratalog.errors import Corrupt, Denied, Invalid, NotFound, Trimmed
from stratalog.herd import Herd
from stratalog.objectlog.tree.seek_window import Window
from stratalog.pipeline.read import pinned_plan
from stratalog.pipeline.read.pinned_plan import Hold, Planned, plan_herd, plan_log
from stratalog.store.protocol import Store

ALL = Window()
HOUR = Hold.lasting(3600.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "log").as_uri()


def offsets_in(planned: Planned) -> list[tuple[int, int]]:
    return [
        (fragment.start.offset, fragment.limit.offset)
        for part in planned.parts
        for fragment in part.fragments
    ]


async def pins_of(url: str) -> list[tuple[int, int]]:
    return [(pin.from_offset, pin.to_offset) for pin in await sl.PinStore(url).list()]


async def collect_all_but_the_last(url: str | Store) -> None:
    async with sl.LogReader.open(url) as reader:
        last = reader.tail - 1
    await sl.CursorStore(url).create("keeper", last)
    await sl.collect(url, options=AT_ONCE)


def test_a_plan_has_the_fragments_of_the_window_and_a_pin_over_exactly_that(url: str) -> None:
    async def main() -> None:
        await fill(url)
        planned = await plan_log(url, Window(35, 52), HOUR)
        assert offsets_in(planned) == [(31, 41), (41, 51), (51, 61)]
        assert await pins_of(url) == [(35, 52)]
        (pin,) = await sl.PinStore(url).list()
        assert pin.name.startswith("spark_")
        assert pin.note == "read by Spark"
        assert HOUR is not None
        assert pin.expires_us == HOUR.expires_us
        await planned.release()
        assert await pins_of(url) == []

    run(main())


def test_all_of_a_log_is_planned_and_pinned(url: str) -> None:
    async def main() -> None:
        await fill(url)
        planned = await plan_log(url, ALL, HOUR)
        assert offsets_in(planned)[0][0] == 1
        assert offsets_in(planned)[-1][1] == RECORDS + 1
        assert await pins_of(url) == [(1, RECORDS + 1)]

    run(main())


def test_a_window_by_time_pins_no_more_than_its_fragments(url: str) -> None:
    async def main() -> None:
        rows = await fill(url)
        (_, from_us, _), (_, to_us, _) = rows[30], rows[60]
        planned = await plan_log(url, Window(0, None, from_us, to_us), HOUR)
        assert offsets_in(planned) == [(31, 41), (41, 51), (51, 61)]
        assert await pins_of(url) == [(31, 61)]

    run(main())


@pytest.mark.parametrize(
    "window", [Window(RECORDS + 1), Window(0, 1), Window(0, None, 2**62), Window(0, None, None, 5)]
)
def test_an_empty_stretch_needs_no_pin(url: str, window: Window) -> None:
    async def main() -> None:
        await fill(url)
        planned = await plan_log(url, window, HOUR)
        assert (offsets_in(planned), planned.pins) == ([], ())
        assert await pins_of(url) == []

    run(main())


def test_an_empty_log_is_an_empty_plan(url: str) -> None:
    async def main() -> None:
        await sl.create_log(url)
        assert offsets_in(await plan_log(url, ALL, HOUR)) == []

    run(main())


def test_without_a_hold_nothing_is_written(url: str) -> None:
    async def main() -> None:
        await fill(url)
        planned = await plan_log(url, ALL, None)
        assert len(offsets_in(planned)) == 10
        assert await pins_of(url) == []

    run(main())


def test_what_must_be_there_and_was_collected_is_told(url: str) -> None:
    async def main() -> None:
        await fill(url)
        await collect_all_but_the_last(url)
        with pytest.raises(Trimmed, match="records 5 to 90") as lost:
            await plan_log(url, Window(5), HOUR, required_from=5)
        assert lost.value.first_offset == 91
        assert offsets_in(await plan_log(url, Window(5), HOUR)) == [(91, 101)]

    run(main())


def test_a_log_that_wal3_wrote_is_read_without_a_pin(url: str) -> None:
    async def main() -> None:
        made = Wal3Log((LEAF, LEAF))
        await made.store(sl.open_store(url))
        planned = await plan_log(url, ALL, HOUR)
        assert offsets_in(planned) == [(1, 3), (3, 5)]
        assert planned.pins == ()

    run(main())


def test_there_must_be_a_log(url: str) -> None:
    with pytest.raises(NotFound, match="there is no log"):
        run(plan_log(url, ALL, HOUR))


class MeddlingStore(PassingStore):
    """Does something else before the first pin is written."""

    def __init__(self, inner: Store, before: Callable[[], object]) -> None:
        super().__init__(inner)
        self._before = before
        self._is_first = True

    async def put_if_absent(self, path: str, data: bytes) -> str:
        if path.startswith("pin/") and self._is_first:
            self._is_first = False
            work = self._before()
            if hasattr(work, "__await__"):
                await work
        return await super().put_if_absent(path, data)


def test_a_log_that_is_collected_just_before_the_pin_is_planned_anew(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        await fill(url)
        inner = sl.open_store(url)
        store = MeddlingStore(inner, lambda: collect_all_but_the_last(inner))
        monkeypatch.setattr(pinned_plan, "open_store", lambda _: store)
        planned = await plan_log(url, ALL, HOUR)
        assert offsets_in(planned) == [(91, 101)]
        assert await pins_of(url) == [(91, 101)]

    run(main())


def test_a_reader_that_may_not_write_is_told_to_read_without_a_pin(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise Denied("no")

    async def main() -> None:
        await fill(url)
        store = MeddlingStore(sl.open_store(url), refuse)
        monkeypatch.setattr(pinned_plan, "open_store", lambda _: store)
        with pytest.raises(Denied, match="cannot be pinned") as denied:
            await plan_log(url, ALL, HOUR)
        assert 'pin="false"' in denied.value.hint
        assert "pin_s=None" in denied.value.hint

    run(main())


def test_a_node_that_is_missing_for_good_is_damage_and_leaves_no_pin(url: str) -> None:
    async def main() -> None:
        await fill(url)
        async with sl.LogReader.open(url) as reader:
            await sl.open_store(url).delete_many([reader.manifest.snapshots[0].path])
        with pytest.raises(Corrupt, match="is missing although the log links it"):
            await plan_log(url, ALL, HOUR)
        assert await pins_of(url) == []

    run(main())


SIZES = {"orders-1": 2, "orders-2": 1, "bills": 3, "empty": 0}


class TestHerd:
    async def plan(self, root: str, *logs: str, window: Window = ALL) -> dict[str | None, int]:
        planned = await plan_herd(root, logs or None, window, Hold.lasting(60.0))
        return {part.log: len(part.fragments) for part in planned.parts}

    def test_all_logs_are_planned_by_name(self, url: str) -> None:
        async def main() -> None:
            await fill_herd(url, SIZES)
            found = await self.plan(url)
            assert found == SIZES
            assert [*found] == sorted(SIZES)

        run(main())

    def test_logs_are_chosen_by_name_and_by_pattern(self, url: str) -> None:
        async def main() -> None:
            await fill_herd(url, SIZES)
            assert [*await self.plan(url, "bills")] == ["bills"]
            assert [*await self.plan(url, "orders-*")] == ["orders-1", "orders-2"]
            assert [*await self.plan(url, "b*", "bills", "*-[2-9]")] == ["bills", "orders-2"]
            with pytest.raises(NotFound, match="nobody"):
                await self.plan(url, "bills", "nobody")
            with pytest.raises(NotFound, match="matches 'x-\\*'"):
                await self.plan(url, "bills", "x-*")

        run(main())

    def test_a_window_is_about_each_log(self, url: str) -> None:
        async def main() -> None:
            await fill_herd(url, SIZES)
            async with Herd.open(url) as herd:
                store = await herd.log("bills").store()
            await collect_all_but_the_last(store)
            found = await self.plan(url, window=Window(5, 15))
            assert found == {"orders-1": 2, "orders-2": 1, "bills": 0, "empty": 0}

        run(main())

    def test_a_log_that_was_dropped_is_not_there(self, url: str) -> None:
        async def main() -> None:
            await fill_herd(url, SIZES)
            async with Herd.open(url) as herd:
                await herd.drop("bills")
            assert "bills" not in await self.plan(url)
            with pytest.raises(NotFound, match="bills"):
                await self.plan(url, "bills")

        run(main())

    def test_a_plan_that_fails_for_one_log_holds_nothing_of_the_others(self, url: str) -> None:
        async def main() -> None:
            await fill_herd(url, SIZES)
            async with Herd.open(url) as herd:
                stores = {name: await herd.log(name).store() for name in SIZES}
            manifest = await stores["bills"].get("manifest/MANIFEST")
            await stores["bills"].put_if_match("manifest/MANIFEST", b"nonsense", manifest.etag)
            with pytest.raises(Corrupt):
                await self.plan(url)
            for store in stores.values():
                assert await sl.PinStore(store).list() == []

        run(main())

    def test_there_must_be_a_herd(self, url: str) -> None:
        with pytest.raises(NotFound, match="herd"):
            run(self.plan(url))


def test_a_hold_of_no_time_is_none() -> None:
    assert Hold.lasting(None) is None
    with pytest.raises(Invalid):
        run(plan_log("memory:/x", ALL, None))


def test_the_planned_rows_stay_readable_when_the_log_is_cut(url: str) -> None:
    async def main() -> None:
        rows = await fill(url)
        planned = await plan_log(url, ALL, HOUR)
        await collect_all_but_the_last(url)
        await sl.sweep(url)
        async with sl.LogReader.open(url, pin=planned.pins[0].name) as reader:
            held = [(each.offset, each.timestamp_us, each.body) async for each in reader.records()]
        assert held == rows
        assert len(await rows_in(url)) == 10

    run(main())
