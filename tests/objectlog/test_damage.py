"""Behaviour 13: damage is reported as ``Corrupt`` with the object's path, never served."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest

import stratalog as sl
from objectlog.whole_log import (
    SMALL_TREE,
    check_whole_log,
    collect_roots,
    replace_bytes,
    rewrite_manifest,
    rows_of,
    run,
    sweep,
    walk,
)
from stratalog.errors import Corrupt, Trimmed
from stratalog.objectlog.stored.fragment import encode_fragment
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.objectlog.stored.object_digest import with_digest
from stratalog.store import MemoryStore
from stratalog.testing import Row

UNVERIFIED = sl.ReaderOptions(verify=False)
NO_CACHE = sl.ReaderOptions(cache_bytes=0)


async def make(url: sl.Store | str, appends: int = 0) -> list[Row]:
    """A log of this many fragments with three records each; by default as many as it takes to
    have two snapshots in the root, one of them over others."""
    async with sl.LogWriter.open(url, create=True, options=SMALL_TREE) as log:
        number = 0
        while number < appends or not (appends or _is_deep(log.manifest)):
            await log.append_many([b"%d.%d" % (number, i) * 8 for i in range(3)])
            number += 1
    return await check_whole_log(url)


def _is_deep(manifest: sl.Manifest) -> bool:
    depths = [pointer.depth for pointer in manifest.snapshots]
    return len(depths) > 1 and depths[0] > 1


async def fragments_of(url: sl.Store | str) -> list[sl.Fragment]:
    found = [e async for e in walk(sl.open_store(url)) if isinstance(e, sl.Fragment)]
    return sorted(found, key=lambda each: each.start.offset)


async def pointers_of(url: sl.Store | str) -> list[sl.SnapshotPointer]:
    return [e async for e in walk(sl.open_store(url)) if isinstance(e, sl.SnapshotPointer)]


def without_digests(manifest: sl.Manifest) -> sl.Manifest:
    """As software of format 1.0 has written it."""
    fragments = tuple(with_digest(each, None) for each in manifest.fragments)
    return msgspec.structs.replace(manifest, fragments=fragments)


async def expect_corrupt(
    url: sl.Store | str, path: str, *, options: sl.ReaderOptions = NO_CACHE
) -> Corrupt:
    """Reading the whole log reports this path, and gives nothing from it before that."""
    async with sl.LogReader.open(url, options=options) as reader:
        with pytest.raises(Corrupt) as caught:
            async for _ in reader.batches(from_offset=reader.first_offset):
                pass
    assert caught.value.path is not None
    assert caught.value.path.endswith(path)
    return caught.value


class TestBehaviour13Fragments:
    def test_a_flipped_byte_is_never_served(self) -> None:
        """Every byte of a fragment of format 1.0, one bit each. What no record depends on may stay
        unnoticed, e.g. the name of the program in the footer; a wrong record may not."""

        async def main() -> None:
            store = MemoryStore()
            rows = await make(store, 2)
            await rewrite_manifest(store, without_digests)
            fragment = (await fragments_of(store))[0]
            good = (await store.get(fragment.path)).data
            random = Random(1)
            reported = 0
            for position in range(len(good)):
                bad = bytearray(good)
                bad[position] ^= 1 << random.randrange(8)
                await replace_bytes(store, fragment.path, bytes(bad))
                try:
                    assert await rows_of(store) == rows, f"byte {position}"
                except Corrupt as error:
                    assert error.path == fragment.path  # noqa: PT017
                    reported += 1
            assert reported > len(good) // 3

        run(main())

    @pytest.mark.parametrize("compression", ["none", "zstd", "snappy"])
    def test_a_flipped_byte_of_a_body_is_reported_on_every_store(
        self, store_url: str, compression: str
    ) -> None:
        async def main() -> None:
            options = sl.WriterOptions(compression=compression)  # type: ignore[arg-type]
            body = Random(2).randbytes(2_000)
            async with sl.LogWriter.open(store_url, create=True, options=options) as log:
                await log.append(b"before")
                await log.append(body)
            fragment = (await fragments_of(store_url))[1]
            store = sl.open_store(store_url)
            good = (await store.get(fragment.path)).data
            middle = good.index(body[1_000:1_010])
            bad = bytearray(good)
            bad[middle] ^= 0x10
            await replace_bytes(store_url, fragment.path, bytes(bad))
            error = await expect_corrupt(store_url, fragment.path)
            assert error.expected == fragment.xxh3
            async with sl.LogReader.open(store_url) as reader:
                with pytest.raises(Corrupt):
                    await reader.fetch(fragment)
                first = [row.body async for row in reader.records(to_offset=2)]
                assert first == [b"before"]

        run(main())

    def test_a_missing_fragment_is_reported(self, store_url: str) -> None:
        async def main() -> None:
            await make(store_url)
            for fragment in (await fragments_of(store_url))[::5]:
                store = sl.open_store(store_url)
                data = (await store.get(fragment.path)).data
                await store.delete_many([fragment.path])
                await expect_corrupt(store_url, fragment.path)
                await expect_corrupt(store_url, fragment.path, options=UNVERIFIED)
                async with sl.LogReader.open(store_url) as reader:
                    with pytest.raises(Corrupt) as caught:
                        await reader.fetch(fragment)
                    assert str(caught.value.path).endswith(fragment.path)
                await store.put_if_absent(fragment.path, data)

        run(main())

    def test_a_fragment_that_is_missing_together_with_its_snapshot_is_reported(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            await make(store_url)
            store = sl.open_store(store_url)
            async with sl.LogReader.open(store_url) as reader:
                fragment = (await reader.scan())[0]
                node = reader.manifest.snapshots[0]
            await store.delete_many([fragment.path, node.path])
            async with sl.LogReader.open(store_url) as reader:
                with pytest.raises(Corrupt):
                    await reader.fetch(fragment)

        run(main())

    def test_a_missing_fragment_is_reported_while_the_log_grows(self, store_url: str) -> None:
        """The manifest has changed since the reader loaded it, yet it still links the fragment."""

        async def main() -> None:
            await make(store_url, 4)
            fragment = (await fragments_of(store_url))[0]
            async with (
                sl.LogWriter.open(store_url) as log,
                sl.LogReader.open(store_url, options=NO_CACHE) as reader,
            ):
                await sl.open_store(store_url).delete_many([fragment.path])
                await log.append(b"later")
                with pytest.raises(Corrupt) as caught:
                    await reader.fetch(fragment)
                assert str(caught.value.path).endswith(fragment.path)
                await log.append(b"later still")
                batches = reader.batches()
                with pytest.raises(Corrupt) as caught:
                    await anext(batches)
                assert str(caught.value.path).endswith(fragment.path)

        run(main())

    def test_two_swapped_fragments_are_reported(self, store_url: str) -> None:
        async def main() -> None:
            await make(store_url)
            store = sl.open_store(store_url)
            first, second = (await fragments_of(store_url))[3:5]
            data = [(await store.get(each.path)).data for each in (first, second)]
            await replace_bytes(store_url, first.path, data[1])
            await replace_bytes(store_url, second.path, data[0])
            await expect_corrupt(store_url, first.path)
            await expect_corrupt(store_url, first.path, options=UNVERIFIED)

        run(main())

    def test_a_truncated_fragment_is_reported(self, store_url: str) -> None:
        async def main() -> None:
            clean = await make(store_url)
            store = sl.open_store(store_url)
            fragment = (await fragments_of(store_url))[2]
            good = (await store.get(fragment.path)).data
            for size in (0, 1, 4, len(good) // 2, len(good) - 4, len(good) - 1):
                await replace_bytes(store_url, fragment.path, good[:size])
                await expect_corrupt(store_url, fragment.path)
                await expect_corrupt(store_url, fragment.path, options=UNVERIFIED)
            for longer in (good + b"x", good + good, b"x" + good):
                await replace_bytes(store_url, fragment.path, longer)
                try:
                    rows = await rows_of(store_url)
                except Corrupt as error:
                    assert str(error.path).endswith(fragment.path)  # noqa: PT017
                else:
                    assert rows == clean
            await replace_bytes(store_url, fragment.path, good)
            assert await check_whole_log(store_url) == clean

        run(main())

    @pytest.mark.parametrize("verify", [True, False])
    @pytest.mark.parametrize("change", ["fewer", "more", "shifted", "other", "not parquet"])
    def test_structure_is_checked_also_without_verification(
        self, store_url: str, change: str, verify: bool
    ) -> None:
        async def main() -> None:
            await make(store_url, 4)
            fragment = (await fragments_of(store_url))[1]
            start, at_us = fragment.start.offset, fragment.start.timestamp_us
            others = {
                "fewer": encode_fragment(start, at_us, [b"a", b"b"]).data,
                "more": encode_fragment(start, at_us, [b"a", b"b", b"c", b"d"]).data,
                "shifted": encode_fragment(start + 1, at_us, [b"a", b"b", b"c"]).data,
                "other": b"PAR1" + b"\0" * 40 + b"PAR1",
                "not parquet": b"{}",
            }
            await replace_bytes(store_url, fragment.path, others[change])
            options = sl.ReaderOptions(verify=verify, cache_bytes=0)
            await expect_corrupt(store_url, fragment.path, options=options)

        run(main())

    def test_other_records_of_the_same_shape_are_reported_when_verifying(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            await make(store_url, 4)
            fragment = (await fragments_of(store_url))[1]
            start, at_us = fragment.start.offset, fragment.start.timestamp_us
            bodies = [b"forged", b"forged too", b""]
            for forged in (
                encode_fragment(start, at_us, bodies).data,
                encode_fragment(start, at_us + 1, [b"1.%d" % i * 8 for i in range(3)]).data,
                encode_fragment(start, at_us, [b"1.%d" % i * 8 for i in (1, 0, 2)]).data,
            ):
                await replace_bytes(store_url, fragment.path, forged)
                await expect_corrupt(store_url, fragment.path)

        run(main())

    def test_the_same_records_in_other_bytes_are_reported_too(self, store_url: str) -> None:
        async def main() -> None:
            await make(store_url, 4)
            fragment = (await fragments_of(store_url))[1]
            start, at_us = fragment.start.offset, fragment.start.timestamp_us
            honest = encode_fragment(start, at_us, [b"1.%d" % i * 8 for i in range(3)], "none")
            await replace_bytes(store_url, fragment.path, honest.data)
            await expect_corrupt(store_url, fragment.path)

        run(main())

    def test_damage_is_reported_again_and_not_cached(self, store_url: str) -> None:
        async def main() -> None:
            await make(store_url, 3)
            store = sl.open_store(store_url)
            fragment = (await fragments_of(store_url))[1]
            good = (await store.get(fragment.path)).data
            await replace_bytes(store_url, fragment.path, good[:-9] + b"123456789")
            async with sl.LogReader.open(store_url) as reader:
                for _ in range(2):
                    with pytest.raises(Corrupt):
                        await reader.fetch(fragment)
                await replace_bytes(store_url, fragment.path, good)
                assert (await reader.fetch(fragment)).num_rows == 3

        run(main())


class TestBehaviour13Snapshots:
    def test_a_flipped_byte_never_gives_wrong_records(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            rows = await make(store, 8)
            reported = 0
            for pointer in await pointers_of(store):
                good = (await store.get(pointer.path)).data
                random = Random(3)
                for position in range(0, len(good), 3):
                    bad = bytearray(good)
                    bad[position] ^= 1 << random.randrange(8)
                    await replace_bytes(store, pointer.path, bytes(bad))
                    try:
                        assert await rows_of(store) == rows, f"byte {position} of {pointer.path}"
                    except Corrupt as error:
                        assert error.path is not None  # noqa: PT017
                        reported += 1
                await replace_bytes(store, pointer.path, good)
            assert reported > 500

        run(main())

    @pytest.mark.parametrize("damage", ["missing", "truncated", "empty", "another", "a list"])
    def test_a_damaged_snapshot_is_reported(self, store_url: str, damage: str) -> None:
        async def main() -> None:
            await make(store_url)
            store = sl.open_store(store_url)
            pointers = await pointers_of(store_url)
            assert max(pointer.depth for pointer in pointers) >= 2
            victim = pointers[0]
            good = (await store.get(victim.path)).data
            bad = {
                "truncated": good[:-20],
                "empty": b"",
                "another": (await store.get(pointers[1].path)).data,
                "a list": b"[]",
            }
            if damage == "missing":
                await store.delete_many([victim.path])
            else:
                await replace_bytes(store_url, victim.path, bad[damage])
            await expect_corrupt(store_url, victim.path)
            await expect_corrupt(store_url, victim.path, options=UNVERIFIED)
            async with sl.LogReader.open(store_url) as reader:
                with pytest.raises(Corrupt):
                    await reader.scan(victim.start.offset)
                rows = [row async for row in reader.records(from_offset=reader.tail - 3)]
                assert len(rows) == 3, "the rest of the log can still be read"

        run(main())

    @pytest.mark.parametrize("change", ["child dropped", "child twice", "gap", "own sum", "depth"])
    def test_a_snapshot_that_is_not_what_its_pointer_promises_is_reported(
        self, change: str
    ) -> None:
        async def main() -> None:
            store = MemoryStore()
            await make(store, 8)
            pointer = next(p for p in await pointers_of(store) if p.depth == 1)
            node = sl.Snapshot.from_json((await store.get(pointer.path)).data)
            first, *rest = node.fragments
            changes: dict[str, dict[str, object]] = {
                "child dropped": {"fragments": tuple(rest)},
                "child twice": {"fragments": (first, first, *rest)},
                "gap": {
                    "fragments": (
                        msgspec.structs.replace(
                            first, limit=sl.LogPosition(first.limit.offset - 1)
                        ),
                        *rest,
                    )
                },
                "own sum": {"setsum": sl.Setsum.of(b"other")},
                "depth": {"depth": 7},
            }
            forged = msgspec.structs.replace(node, **changes[change])
            await replace_bytes(store, pointer.path, forged.to_json())
            await expect_corrupt(store, pointer.path)
            await expect_corrupt(store, pointer.path, options=UNVERIFIED)

        run(main())

    def test_a_damaged_snapshot_does_not_stop_a_writer(self, store_url: str) -> None:
        """It needs no old node; at most a roll-up does without it."""

        async def main() -> None:
            await make(store_url)
            store = sl.open_store(store_url)
            async with sl.LogReader.open(store_url) as reader:
                victim = reader.manifest.snapshots[-1]
            await replace_bytes(store_url, victim.path, b"damaged")
            async with sl.LogWriter.open(store_url, options=SMALL_TREE) as log:
                for number in range(12):
                    await log.append(b"%d" % number)
                tail = log.tail
            async with sl.LogReader.open(store) as reader:
                rows = [row async for row in reader.records(from_offset=tail - 12)]
                assert len(rows) == 12
                reader.manifest.check()

        run(main())


class TestBehaviour13Manifest:
    def test_a_flipped_byte_never_gives_wrong_records(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            rows = await make(store, 6)
            good = (await store.get(MANIFEST_PATH)).data
            random = Random(4)
            reported = 0
            for position in range(len(good)):
                bad = bytearray(good)
                bad[position] ^= 1 << random.randrange(8)
                await replace_bytes(store, MANIFEST_PATH, bytes(bad))
                try:
                    assert await rows_of(store) == rows, f"byte {position}"
                except Corrupt as error:
                    assert error.path is not None  # noqa: PT017
                    reported += 1
                except sl.errors.Invalid as error:
                    assert "format" in str(error)  # noqa: PT017
            assert reported > len(good) // 2

        run(main())

    @pytest.mark.parametrize("damage", [b"", b"null", b"[]", b"{}", b"\xff\xfe", b'{"setsum":1}'])
    def test_a_damaged_manifest_is_reported_by_all_who_open_it(
        self, store_url: str, damage: bytes
    ) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            await replace_bytes(store_url, MANIFEST_PATH, damage)
            for opening in (sl.LogReader.open(store_url), sl.LogWriter.open(store_url)):
                with pytest.raises(Corrupt) as caught:
                    await opening
                assert caught.value.path == MANIFEST_PATH

        run(main())

    def test_a_manifest_damaged_under_a_live_writer_is_never_overwritten(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            log = await sl.LogWriter.open(
                store_url, create=True, options=sl.WriterOptions(on_fenced="reopen")
            )
            await log.append(b"one")
            await replace_bytes(store_url, MANIFEST_PATH, b"damaged")
            with pytest.raises(sl.StratalogError):
                await log.append(b"two")
            await log.close()
            assert (await sl.open_store(store_url).get(MANIFEST_PATH)).data == b"damaged"

        run(main())

    @pytest.mark.parametrize("change", ["sum", "gap", "overlap", "sequence", "time"])
    def test_a_manifest_that_does_not_hold_is_reported(self, store_url: str, change: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                for number in range(3):
                    await log.append(b"%d" % number)
            manifest = log.manifest
            first, second, third = manifest.fragments
            replace = msgspec.structs.replace
            total = sl.Setsum.total
            changed = {
                "sum": replace(manifest, setsum=sl.Setsum.of(b"other")),
                "gap": replace(
                    manifest,
                    fragments=(first, third),
                    setsum=total([first.setsum, third.setsum]),
                ),
                "overlap": replace(
                    manifest,
                    fragments=(first, second, second, third),
                    setsum=total([first.setsum, second.setsum, second.setsum, third.setsum]),
                ),
                "sequence": replace(manifest, fragments=(first, second, replace(third, seq_no=9))),
                "time": replace(
                    manifest,
                    fragments=(first, second, replace(third, start=sl.LogPosition(3, 1))),
                ),
            }[change]
            await replace_bytes(store_url, MANIFEST_PATH, changed.to_json())
            with pytest.raises(Corrupt) as caught:
                await sl.LogReader.open(store_url)
            assert caught.value.path == MANIFEST_PATH

        run(main())


class TestBehaviour13NotDamage:
    """What only looks like damage: the log moved on."""

    def test_collected_data_is_trimmed_not_corrupt(self, store_url: str) -> None:
        async def main() -> None:
            await make(store_url)
            async with sl.LogReader.open(store_url, options=NO_CACHE) as reader:
                fragments = await reader.scan()
                first = await collect_roots(store_url, 1)
                assert first > 1
                with pytest.raises(Trimmed) as caught:
                    await reader.fetch(fragments[0])
                assert caught.value.first_offset == first
            async with sl.LogReader.open(store_url, options=NO_CACHE) as reader:
                first = await collect_roots(store_url, 1)
                with pytest.raises(Trimmed) as caught:
                    async for _ in reader.batches(from_offset=reader.first_offset):
                        pass
                assert caught.value.first_offset == first

        run(main())

    def test_a_replaced_fragment_is_read_from_its_new_place(self, store_url: str) -> None:
        async def main() -> None:
            rows = await make(store_url, 3)
            store = sl.open_store(store_url)
            async with sl.LogReader.open(store_url, options=NO_CACHE) as reader:
                old = reader.manifest.fragments[-2]
                data = (await store.get(old.path)).data
                await store.put_if_absent("log/moved.parquet", data)

                def move(manifest: sl.Manifest) -> sl.Manifest:
                    fragments = tuple(
                        msgspec.structs.replace(each, path="log/moved.parquet")
                        if each.path == old.path
                        else each
                        for each in manifest.fragments
                    )
                    return msgspec.structs.replace(manifest, fragments=fragments)

                await rewrite_manifest(store_url, move)
                await store.delete_many([old.path])
                found = [(r.offset, r.timestamp_us, r.body) async for r in reader.records()]
                assert found == rows

        run(main())

    def test_a_replaced_snapshot_is_read_from_its_new_place_also_by_time(
        self, store_url: str
    ) -> None:
        """On a log whose beginning was collected long ago; nothing asked for is trimmed."""

        async def main() -> None:
            await make(store_url)
            first = await collect_roots(store_url, 1)
            store = sl.open_store(store_url)
            rows = await rows_of(store_url)
            async with sl.LogReader.open(store_url, options=NO_CACHE) as reader:
                victim = reader.manifest.snapshots[0]
                node = sl.Snapshot.from_json((await store.get(victim.path)).data)
                moved = msgspec.structs.replace(node, path=victim.path + "-moved")
                await store.put_if_absent(moved.path, moved.to_json())

                def move(manifest: sl.Manifest) -> sl.Manifest:
                    return msgspec.structs.replace(
                        manifest, snapshots=(moved.pointer(), *manifest.snapshots[1:])
                    )

                await rewrite_manifest(store_url, move)
                await store.delete_many([victim.path])
                by_time = [r.offset async for r in reader.records(from_timestamp_us=rows[0][1])]
                assert by_time == [row[0] for row in rows]
                assert by_time[0] == first

        run(main())

    @pytest.mark.parametrize("appends", [7, 10, 13])
    def test_a_refresh_in_the_middle_of_an_iteration_is_not_taken_for_damage(
        self, store_url: str, appends: int
    ) -> None:
        """What the iteration still holds was replaced, and the reader knows the new manifest."""

        async def main() -> None:
            options = sl.ReaderOptions(cache_bytes=0, prefetch_fragments=1)
            async with sl.LogWriter.open(store_url, create=True, options=SMALL_TREE) as log:
                for number in range(appends):
                    await log.append(b"%d" % number)
                async with sl.LogReader.open(store_url, options=options) as reader:
                    records = reader.records()
                    seen = [(await anext(records)).offset]
                    held = await reader.scan(appends // 2)
                    for number in range(16):
                        await log.append(b"more-%d" % number)
                        await asyncio.sleep(0.001)
                    assert await sweep(store_url)
                    await reader.refresh()
                    seen += [record.offset async for record in records]
                    assert seen == list(range(1, appends + 1))
                    assert (await reader.fetch(held[0])).num_rows == 1

        run(main())

    def test_parallel_readers_share_nothing(self, store_url: str) -> None:
        async def main() -> None:
            rows = await make(store_url, 6)
            found = await asyncio.gather(*(rows_of(store_url) for _ in range(6)))
            assert all(each == rows for each in found)

        run(main())
