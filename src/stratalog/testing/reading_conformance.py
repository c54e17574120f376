"""What readers and cursors must do on every store: behaviours 11 to 15, as seen from outside."""

import asyncio
from contextlib import aclosing

import pytest

import stratalog as sl
from stratalog.errors import Conflict, Corrupt, Exists, Invalid, NotFound
from stratalog.store import Store
from stratalog.testing.scenarios import (
    SMALL_TREE,
    Scenarios,
    overwrite,
    read_all,
    rows_of,
    scenario,
    write_fragments,
)

BEFORE_A_FLIP = {"log": b"0/", "snapshot": b'"setsum":"'}
"""What stands before the byte that is flipped: within a body, and within a sum."""


class ReadingConformance(Scenarios):
    """Scanning, seeking, following, damage, and cursors."""

    @scenario
    async def test_a_scan_keeps_its_limits_and_skips_what_is_before(self, store: Store) -> None:
        """[11]"""
        await write_fragments(store, 20, records=3)
        async with sl.LogReader.open(store) as reader:
            every = await reader.scan()
            assert [each.start.offset for each in every] == [*range(1, 61, 3)]
            for from_offset in range(1, 61):
                found = await reader.scan(from_offset)
                assert found == [each for each in every if each.limit.offset > from_offset]
                for most in (1, 2, 7):
                    limits = sl.Limits(max_files=most)
                    assert await reader.scan(from_offset, limits=limits) == found[:most]
            assert await reader.scan(reader.tail) == []
            for most in (1, 3, 8, 9):
                found = await reader.scan(limits=sl.Limits(max_records=most))
                assert found == every[: max(1, most // 3)]
            size = every[0].num_bytes + every[1].num_bytes
            assert await reader.scan(limits=sl.Limits(max_bytes=size)) == every[:2]
            assert await reader.scan(limits=sl.Limits(max_bytes=1)) == every[:1]
            assert await reader.scan(limits=sl.Limits(to_offset=7)) == every[:2]
            limit_us = every[5].start.timestamp_us
            assert await reader.scan(limits=sl.Limits(to_timestamp_us=limit_us)) == every[:5]

    @scenario
    async def test_any_part_of_the_log_can_be_read(self, store: Store) -> None:
        """[11]"""
        await write_fragments(store, 5, records=3)
        everything = await read_all(store)
        async with sl.LogReader.open(store) as reader:
            for low in range(1, 17):
                for high in range(low, 18):
                    part = await rows_of(reader.records(from_offset=low, to_offset=high))
                    assert part == everything[low - 1 : high - 1]

    @scenario
    async def test_a_reader_shows_one_moment_until_it_is_refreshed(self, store: Store) -> None:
        """[11]"""
        async with (
            sl.LogWriter.open(store, create=True) as log,
            sl.LogReader.open(store) as reader,
        ):
            assert (reader.first_offset, reader.tail) == (1, 1)
            await log.append(b"one")
            assert await rows_of(reader.records()) == []
            await reader.refresh()
            assert (reader.first_offset, reader.tail) == (1, 2)
            assert [body for _, _, body in await rows_of(reader.records())] == [b"one"]

    @scenario
    async def test_seeking_by_time_gives_the_first_record_at_or_after_it(
        self, store: Store
    ) -> None:
        """[12]"""
        await write_fragments(store, 12, records=2)
        everything = await read_all(store)
        times = sorted({timestamp_us for _, timestamp_us, _ in everything})
        async with sl.LogReader.open(store) as reader:
            for moment in [0, *times, *(each + 1 for each in times)]:
                found = await rows_of(reader.records(from_timestamp_us=moment))
                assert found == [row for row in everything if row[1] >= moment]

    @pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "swap", "remove"])
    @pytest.mark.parametrize("kind", ["fragment", "snapshot"])
    @scenario
    async def test_a_damaged_object_is_reported_by_its_path_and_never_served(
        self, store: Store, kind: str, damage: str
    ) -> None:
        """[13]"""
        await write_fragments(store, 12, records=2)
        async with sl.LogReader.open(store) as reader:
            linked = await reader.scan() if kind == "fragment" else reader.manifest.snapshots
            path = linked[0].path
        await damage_object(store, damage, path)
        async with sl.LogReader.open(store) as reader:
            with pytest.raises(Corrupt) as caught:
                await rows_of(reader.records())
        assert str(caught.value.path).endswith(path)

    @scenario
    async def test_a_manifest_that_makes_no_sense_is_corrupt_for_readers_and_writers(
        self, store: Store
    ) -> None:
        """[13]"""
        await write_fragments(store, 3, records=2)
        path = "manifest/MANIFEST"
        good = (await store.get(path)).data
        for bad in (good[:-1], b"", b"null", good.replace(b'"setsum":"', b'"setsum":"0', 1)):
            await overwrite(store, path, bad)
            for opening in (sl.LogReader.open(store), sl.LogWriter.open(store)):
                with pytest.raises(Corrupt) as caught:
                    await opening
                assert str(caught.value.path).endswith(path)

    @scenario
    async def test_following_sees_every_record_once_across_writers_and_roll_ups(
        self, store: Store
    ) -> None:
        """[14]"""
        await sl.create_log(store)
        options = sl.ReaderOptions(poll_s_min=0.001, poll_s_max=0.01)
        seen: list[bytes] = []

        async def follow() -> None:
            async with (
                sl.LogReader.open(store, options=options) as reader,
                aclosing(reader.follow(from_offset=1)) as batches,
            ):
                async for batch in batches:
                    seen.extend(batch.column("body").to_pylist())
                    if len(seen) >= 90:
                        return

        following = asyncio.create_task(follow())
        bodies = [b"%d" % number for number in range(90)]
        for start in range(0, 90, 30):
            async with sl.LogWriter.open(store, options=SMALL_TREE) as log:
                for body in bodies[start : start + 30]:
                    await log.append(body)
        await following
        assert seen == bodies

    @scenario
    async def test_a_cursor_moves_only_with_a_witness_of_its_last_value(self, store: Store) -> None:
        """[15]"""
        await write_fragments(store, 10, records=3)
        cursors = sl.CursorStore(store)
        first = await cursors.create("compaction", 10)
        with pytest.raises(Exists):
            await cursors.create("compaction", 11)
        moved = await first.move(20)
        for stale in (first.move(15), first.delete()):
            with pytest.raises(Conflict):
                await stale
        loaded = await cursors.load("compaction")
        assert (first.offset, moved.offset, loaded.offset) == (10, 20, 20)
        assert (await loaded.move(20)).offset == 20
        with pytest.raises(Conflict):
            await moved.move(21)

    @scenario
    async def test_cursors_are_listed_deleted_and_made_again(self, store: Store) -> None:
        """[15]"""
        await write_fragments(store, 3, records=1)
        cursors = sl.CursorStore(store)
        for name in ("b", "A_1", "c"):
            await cursors.create(name, 2)
        await (await cursors.load("b")).delete()
        with pytest.raises(NotFound):
            await cursors.load("b")
        assert sorted([each.name for each in await cursors.list()]) == ["A_1", "c"]
        assert (await cursors.create("b", 3)).offset == 3

    @pytest.mark.parametrize("name", ["", "a-b", "a/b", "..", "a.json", "ä", "a b", "a\n"])
    @scenario
    async def test_a_cursor_of_another_name_than_letters_digits_and_underscores_is_refused(
        self, store: Store, name: str
    ) -> None:
        """[15]"""
        await sl.create_log(store)
        cursors = sl.CursorStore(store)
        with pytest.raises(Invalid):
            await cursors.create(name, 1)
        with pytest.raises(Invalid):
            await cursors.load(name)


async def damage_object(store: Store, damage: str, path: str) -> None:
    """Change an object behind the log's back."""
    kind = path.partition("/")[0]
    data = (await store.get(path)).data
    if damage == "remove":
        await store.delete_many([path])
    elif damage == "flip":
        place = data.index(BEFORE_A_FLIP[kind]) + len(BEFORE_A_FLIP[kind])
        await overwrite(store, path, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    elif damage == "truncate":
        await overwrite(store, path, data[:-1])
    elif damage == "empty":
        await overwrite(store, path, b"")
    else:
        others = [row.path async for row in store.list(f"{kind}/") if row.path != path]
        await overwrite(store, path, (await store.get(others[0])).data)
