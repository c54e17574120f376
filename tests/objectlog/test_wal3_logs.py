"""Logs that wal3 made: read, scrubbed, forked and copied; never written to."""

from __future__ import annotations

import json
import uuid

import pytest

import stratalog as sl
from objectlog.crashing import CrashPoint, crash_at_each, run_until_crash, sides_of
from objectlog.test_collection import AT_ONCE
from objectlog.test_forks import collect_to, two
from objectlog.trees import LEAF, Shape
from objectlog.wal3_logs import FIRST_US, Wal3Log, compact, cut_off, plan
from objectlog.whole_log import bodies_of, rows_of, run
from objectlog.wrapped_stores import PassingStore, Puts
from stratalog import ScrubOptions
from stratalog.cli.commands.log.tree import load_tree
from stratalog.errors import Conflict, Corrupt, Invalid, Trimmed
from stratalog.objectlog.branch.copy import copy_log
from stratalog.objectlog.branch.destroy_log import destroy
from stratalog.objectlog.branch.fork_log import Forked, fork
from stratalog.objectlog.branch.seal_log import Sealer
from stratalog.objectlog.check.scrub_log import scrub
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.holds.fork_note import abort_fork, note_of
from stratalog.objectlog.holds.pin import PinStore
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, load_manifest
from stratalog.objectlog.stored.plan import GARBAGE_PATH
from stratalog.setsum import EMPTY
from stratalog.store import MemoryStore, StoreLike
from stratalog.store.protocol import Blob
from stratalog.testing import History, Row

PLAIN: Shape = ((LEAF, LEAF), LEAF)
CHAIN: Shape = ((((LEAF, LEAF),),), (LEAF, LEAF), LEAF)
"""Its first pointer has depth 3; what is stored under its name has depth 1."""

SHAPES: list[Shape] = [
    (LEAF,),
    PLAIN,
    (((LEAF, LEAF),), LEAF),
    CHAIN,
    (((LEAF,), (LEAF, LEAF)), LEAF),
    ((((LEAF, LEAF),), ((LEAF,),)), (LEAF,), LEAF),
    (((LEAF,), ((LEAF, LEAF),)), ((LEAF, LEAF),), (LEAF, LEAF), LEAF, LEAF),
    ((((LEAF, LEAF), (LEAF,)),), ((LEAF,),)),
]
HERE = ScrubOptions(processes=0)


def memory() -> MemoryStore:
    return MemoryStore(uuid.uuid4().hex)


async def stored(log: Wal3Log, url: StoreLike | None = None) -> sl.Store:
    return await log.store(memory() if url is None else sl.open_store(url))


def every_log() -> list[Wal3Log]:
    """Every shape, in both variants, from the beginning and after a collection."""
    return [
        Wal3Log(shape, by_uuid=by_uuid, first_offset=first, first_seq_no=(first + 1) // 2)
        for shape in SHAPES
        for by_uuid in (False, True)
        for first in (1, 41)
    ]


class TestReading:
    def test_its_json_is_written_as_the_description_has_it(self) -> None:
        log = Wal3Log(PLAIN, first_offset=41, first_seq_no=21)
        stored = log.objects[MANIFEST_PATH].decode()
        assert stored.startswith('{"setsum":"')
        assert stored.endswith(',"initial_offset":{"offset":41},"initial_seq_no":21}')
        assert sl.Manifest.from_json(stored).to_json() == stored.encode()
        (pointer,) = log.manifest["snapshots"]
        node = sl.Snapshot.from_json(log.objects[pointer["path_to_snapshot"]])
        assert node.to_json() == log.objects[pointer["path_to_snapshot"]]

    def test_every_variant_and_shape_gives_its_records(self) -> None:
        async def main() -> None:
            for log in every_log():
                store = await stored(log)
                assert await rows_of(store) == log.rows
                async with sl.LogReader.open(store) as reader:
                    for offset in range(log.first_offset, log.limit):
                        for _ in range(2):  # the second time from the cache
                            (row,) = [r async for r in reader.records(offset, offset + 1)]
                            assert row.offset == offset

        run(main())

    def test_on_every_store(self, store_url: str) -> None:
        async def main() -> None:
            log = Wal3Log(CHAIN, by_uuid=True)
            store = await stored(log, store_url)
            assert await rows_of(store) == log.rows

        run(main())

    def test_a_chain_of_nodes_is_one_object_and_one_read(self) -> None:
        async def main() -> None:
            log = Wal3Log(CHAIN)
            assert [each["depth"] for each in log.manifest["snapshots"]] == [3, 1]
            assert len([path for path in log.objects if path.startswith("snapshot/")]) == 2
            store = await stored(log)
            async with sl.LogReader.open(store) as reader:
                assert [row.offset async for row in reader.records()] == list(range(1, 11))
                assert [row.offset async for row in reader.records()] == list(range(1, 11))
                reads = reader.stats["snapshots"]
                assert not isinstance(reads, int)
                assert reads.count == 2

        run(main())

    def test_a_manifest_without_collected_is_whole(self) -> None:
        async def main() -> None:
            log = Wal3Log(PLAIN, with_collected=False)
            assert "collected" not in log.manifest
            assert await rows_of(await stored(log)) == log.rows

        run(main())

    def test_records_are_found_by_time_although_entries_have_none(self) -> None:
        async def main() -> None:
            store = await stored(Wal3Log(CHAIN))
            async with sl.LogReader.open(store) as reader:
                found = [r.offset async for r in reader.records(from_timestamp_us=FIRST_US + 3)]
            assert found == list(range(5, 11))

        run(main())

    def test_a_scrub_finds_nothing_wrong(self) -> None:
        async def main() -> None:
            for log in every_log():
                report = await scrub(await stored(log), options=HERE)
                assert report.clean, report.damages
                assert report.records == len(log.rows)

        run(main())

    def test_the_tree_can_be_drawn(self) -> None:
        async def main() -> None:
            for log in every_log():
                manifest, branch = await load_tree(await stored(log), everything=True)
                assert manifest.tail.offset == log.limit
                assert json.dumps(branch.as_json())

        run(main())

    def test_a_node_that_leads_to_itself_is_damage_and_no_endless_walk(self) -> None:
        """As if the parent had taken the name that it shares with its only child."""

        async def main() -> None:
            log = Wal3Log((((LEAF, LEAF),), LEAF))
            (pointer,) = log.manifest["snapshots"]
            path = pointer["path_to_snapshot"]
            node = json.loads(log.objects[path])
            child = {**pointer, "depth": 1}
            log.objects[path] = compact({**node, "depth": 2, "fragments": [], "snapshots": [child]})
            store = await stored(log)
            with pytest.raises(Corrupt, match="deeper"):
                await rows_of(store)
            with pytest.raises(Corrupt, match="deeper"):
                await load_tree(store, everything=True)
            with pytest.raises(Corrupt, match="deeper"):
                await copy_log(store, memory(), from_offset=2)
            source, target = two(f"memory://{uuid.uuid4().hex}")
            await stored(log, source)
            with pytest.raises(Corrupt, match="deeper"):
                await fork(source, target, at=2)

        run(main())


class TestWriting:
    def test_whatever_would_change_it_is_refused_and_changes_nothing(self, store_url: str) -> None:
        async def main() -> None:
            log = Wal3Log(PLAIN)
            store = await stored(log, store_url)
            with pytest.raises(Invalid, match="made by another program") as refused:
                await sl.LogWriter.open(store)
            assert "Copy it" in refused.value.hint
            with pytest.raises(Invalid):
                await sl.CursorStore(store).create("mine", 1)
            with pytest.raises(Invalid):
                await PinStore(store).create("mine")
            with pytest.raises(Invalid):
                await Sealer(store).seal()
            with pytest.raises(Invalid):
                await sweep(store)
            with pytest.raises(Invalid):
                await destroy(store)
            await store.put_if_absent("cursor/compaction.json", compact(CURSOR))
            with pytest.raises(Invalid):
                await sl.collect(store, options=AT_ONCE)
            found = {row.path: (await store.get(row.path)).data async for row in store.list()}
            assert found == {**log.objects, "cursor/compaction.json": compact(CURSOR)}

        run(main())


CURSOR = {"position": {"offset": 5}, "epoch_us": FIRST_US, "writer": "compactor"}


async def forked(log: Wal3Log, base: str | None = None, at: int | None = None) -> Forked:
    source, target = two(base or f"memory://{uuid.uuid4().hex}")
    await stored(log, source)
    return await fork(source, target, at=at)


async def check_rows(url: StoreLike, wanted: list[Row]) -> None:
    assert await rows_of(url) == wanted
    report = await scrub(url, options=HERE)
    assert report.clean, report.damages


class TestForks:
    def test_at_every_offset_of_every_log_and_then_appended_to(self) -> None:
        async def main() -> None:
            for log in every_log():
                for at in range(log.first_offset, log.limit + 1):
                    found = await forked(log, at=at)
                    shared = [row for row in log.rows if row[0] < at]
                    await check_rows(found.url, shared)
                    async with sl.LogWriter.open(found.url) as writer:
                        positions = [await writer.append(b"own") for _ in range(3)]
                    assert [each.offset for each in positions] == [at, at + 1, at + 2]
                    own = [(each.offset, each.timestamp_us, b"own") for each in positions]
                    await check_rows(found.url, [*shared, *own])

        run(main())

    @pytest.mark.parametrize("by_uuid", [False, True])
    @pytest.mark.parametrize("shape", SHAPES)
    def test_collected_at_every_offset_the_source_stays_as_it_is(
        self, shape: Shape, by_uuid: bool
    ) -> None:
        async def main() -> None:
            log = Wal3Log(shape, by_uuid=by_uuid)
            for own in (0, 2):
                for cut in range(2, log.limit + own + 1):
                    found = await forked(log)
                    async with sl.LogWriter.open(found.url) as writer:
                        for _ in range(own):
                            await writer.append(b"own")
                    rows = await rows_of(found.url)
                    await collect_to(found.url, cut)
                    start = cut if cut >= log.limit else (cut - 1) // 2 * 2 + 1
                    kept = [row for row in rows if row[0] >= start]
                    await check_rows(found.url, kept)
                    await sweep(found.url)
                    await check_rows(found.url, kept)
                    async with sl.LogWriter.open(found.url) as writer:
                        assert (await writer.append(b"more")).offset == log.limit + own
                    assert await rows_of(found.source) == log.rows

        run(main())

    def test_wal3_keeps_what_a_fork_shares_because_of_a_cursor(self, store_url: str) -> None:
        async def main() -> None:
            log = Wal3Log(PLAIN, first_offset=41, first_seq_no=21)
            found = await forked(log, store_url)
            source = sl.open_store(found.source)
            theirs = compact({**CURSOR, "position": {"offset": 45}})
            await source.put_if_absent("cursor/compaction.json", theirs)
            assert await cut_off(source) == 41
            assert found.held_by == "cursor"
            cursor = json.loads((await source.get(f"cursor/{found.hold}.json")).data)
            assert list(cursor) == ["position", "epoch_us", "writer"]
            assert cursor["position"] == {"offset": 41}

        run(main())

    def test_a_fork_that_left_its_source_behind_lets_wal3_collect_again(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            found = await forked(Wal3Log(CHAIN), store_url)
            source = sl.open_store(found.source)
            assert await cut_off(source) == 1
            async with sl.LogWriter.open(found.url) as writer:
                await writer.append(b"own")
            await collect_to(found.url, found.at)
            assert await cut_off(source) is None
            note = note_of((await load_manifest(sl.open_store(found.url)))[0])
            assert note is not None
            assert note.state == "detached"
            assert await bodies_of(found.url) == [b"own"]

        run(main())

    @pytest.mark.parametrize("with_uuids", [True, False])
    def test_while_wal3_collects_a_fork_is_refused_and_can_be_completed_later(
        self, with_uuids: bool
    ) -> None:
        async def main() -> None:
            source, target = two(f"memory://{uuid.uuid4().hex}")
            store = await stored(Wal3Log(PLAIN), source)
            pending = plan(first_to_keep=5, drop=(1, 3), with_uuids=with_uuids)
            etag = await store.put_if_absent(GARBAGE_PATH, pending)
            with pytest.raises(Conflict, match="wal3 is collecting this log up to 5"):
                await fork(source, target)
            assert await cut_off(store) is None
            await store.put_if_match(GARBAGE_PATH, plan(with_uuids=with_uuids), etag)
            await fork(source, target)
            assert await cut_off(store) == 1

        run(main())

    def test_a_fork_that_was_given_up_holds_nothing(self) -> None:
        async def main() -> None:
            source, target = two(f"memory://{uuid.uuid4().hex}")
            store = await stored(Wal3Log(PLAIN), source)
            await store.put_if_absent(GARBAGE_PATH, plan(first_to_keep=5, drop=(1, 3)))
            with pytest.raises(Conflict):
                await fork(source, target)
            await abort_fork(target)
            assert await cut_off(store) is None

        run(main())

    def test_a_fork_of_such_a_fork_keeps_the_hold(self) -> None:
        async def main() -> None:
            log = Wal3Log(CHAIN, by_uuid=True)
            first = await forked(log)
            second = await fork(first.url, f"{first.url}-again", at=7)
            assert second.held_by == "pin"
            async with sl.LogWriter.open(first.url) as writer:
                await writer.append(b"own")
            await collect_to(first.url, first.at)
            assert await cut_off(sl.open_store(first.source)) == 1
            await check_rows(second.url, [row for row in log.rows if row[0] < 7])

        run(main())


class TestForksThatCrash:
    def crash(self, side: str, point: CrashPoint | None) -> list[CrashPoint]:
        source, target = two(f"memory://{uuid.uuid4().hex}")
        log = Wal3Log(CHAIN, by_uuid=True)
        run(stored(log, source))

        async def script(store: sl.Store, _: History) -> None:
            pair = (store, target) if side == "source" else (source, store)
            await fork(*pair, at=4)

        url = sl.open_store(source if side == "source" else target)
        operations = run_until_crash(url, script, point, History(), Puts())

        async def finish() -> None:
            await fork(source, target, at=4)
            assert await cut_off(sl.open_store(source)) == 1
            await check_rows(target, log.rows[:3])

        run(finish())
        return sides_of(operations)

    @pytest.mark.parametrize("side", ["source", "target"])
    def test_at_every_operation(self, side: str) -> None:
        crash_at_each(self.crash(side, None), lambda point: self.crash(side, point))


class TestCopies:
    def test_every_stretch_of_every_log(self) -> None:
        async def main() -> None:
            for log in every_log():
                source = await stored(log)
                for first in range(log.first_offset, log.limit + 1):
                    target = memory()
                    await copy_log(source, target, from_offset=first)
                    await check_rows(target, [row for row in log.rows if row[0] >= first])
                for limit in range(log.first_offset, log.limit):
                    target = memory()
                    await copy_log(source, target, to_offset=limit)
                    await check_rows(target, [row for row in log.rows if row[0] < limit])
                assert {row.path async for row in source.list()} == set(log.objects)

        run(main())

    def test_a_copy_can_be_written_to_and_collected(self, store_url: str) -> None:
        async def main() -> None:
            log = Wal3Log(CHAIN, by_uuid=True)
            source, target = two(store_url)
            await stored(log, source)
            copied = await copy_log(source, target)
            manifest, _ = await load_manifest(sl.open_store(source))
            assert copied.setsum == manifest.setsum != EMPTY
            async with sl.LogWriter.open(target) as writer:
                assert (await writer.append(b"own")).offset == log.limit
            await collect_to(target, 5)
            rows = await rows_of(target)
            assert rows[:-1] == log.rows[4:]

        run(main())

    def test_what_wal3_collects_meanwhile_is_told_also_to_the_next_run(self) -> None:
        async def main() -> None:
            whole, rest = Wal3Log(PLAIN), Wal3Log((LEAF,), first_offset=5, first_seq_no=3)
            source = await stored(whole)
            fragments = [path for path in whole.objects if path.startswith("log/")]

            class Collecting(PassingStore):
                async def get(self, path: str) -> Blob:
                    if path == fragments[1]:
                        manifest = await source.get(MANIFEST_PATH)
                        cut = rest.objects[MANIFEST_PATH]
                        await source.put_if_match(MANIFEST_PATH, cut, manifest.etag)
                        await source.delete_many(fragments[:2])
                    return await super().get(path)

            target = memory()
            for store in (Collecting(source), source):
                with pytest.raises(Trimmed) as trimmed:
                    await copy_log(store, target)
                assert trimmed.value.first_offset == 5

        run(main())
