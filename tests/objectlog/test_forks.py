"""Behaviour 22: a fork shares fragments with its source, and neither side hurts the other."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from random import Random

import pytest

import stratalog as sl
from objectlog.crashing import CrashPoint, crash_at_each, run_until_crash, sides_of
from objectlog.test_collection import AT_ONCE, DEEP, garbage_left, made
from objectlog.trees import LEAF, MadeLog, Shape, shapes
from objectlog.whole_log import bodies_of, rows_of, run
from objectlog.wrapped_stores import CountingStore, GateStore, Puts
from stratalog.errors import Conflict, Exists, Invalid, NotFound, Trimmed, Unavailable
from stratalog.objectlog.branch.destroy_log import destroy
from stratalog.objectlog.branch.fork_log import fork
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.holds.fork_note import abort_fork, note_of
from stratalog.objectlog.holds.pin import PinStore
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, load_manifest
from stratalog.store import MemoryStore, StoreLike
from stratalog.store.prefixed import PrefixedStore
from stratalog.testing import History


def bodies(first: int, limit: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, limit)]


async def collect_to(url: StoreLike, offset: int) -> None:
    """Cut the log at an offset, as an owner of one cursor would."""
    cursors = sl.CursorStore(url)
    try:
        cursor = await cursors.load("keeper")
        await cursor.move(offset)
    except NotFound:
        await cursors.create("keeper", offset)
    await sl.collect(url, options=AT_ONCE)


async def begin(source: StoreLike, target: StoreLike) -> None:
    """A fork whose maker died before it made its pin."""
    gate = GateStore(sl.open_store(source), "pin/")
    dying = asyncio.ensure_future(fork(gate, target))
    await gate.arrived.wait()
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)


async def check_fork(url: StoreLike, first: int, limit: int) -> None:
    """Every record from ``first`` is there, verified, and the manifest adds up."""
    rows = await rows_of(url)
    assert [row[0] for row in rows] == list(range(first, limit))
    manifest, _ = await load_manifest(sl.open_store(url))
    manifest.check()
    assert manifest.fragments or not manifest.entries


def two(base: str) -> tuple[str, str]:
    return f"{base}/source", f"{base}/fork"


class TestBehaviour22Forks:
    def test_it_reads_as_its_source_and_appends_on_its_own(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            await made(source)
            forked = await fork(source, target)
            assert (forked.first_offset, forked.at) == (1, 10)
            assert await bodies_of(target) == bodies(1, 10)
            async with sl.LogWriter.open(target) as log, sl.LogWriter.open(source) as other:
                assert (await log.append(b"mine")).offset == 10
                assert (await other.append(b"theirs")).offset == 10
            assert await bodies_of(target) == [*bodies(1, 10), b"mine"]
            assert await bodies_of(source) == [*bodies(1, 10), b"theirs"]
            fragments = [row async for row in sl.open_store(target).list("log/")]
            assert len(fragments) == 1, "nothing was copied"

        run(main())

    @pytest.mark.parametrize("fragments", [4, 7, 8])
    def test_at_every_offset_of_every_shape(self, fragments: int) -> None:
        async def main() -> None:
            for shape in shapes(fragments, 2):
                for at in range(1, fragments + 2):
                    source, target = two(f"memory://{uuid.uuid4().hex}")
                    await made(source, shape)
                    await fork(source, target, at=at)
                    await check_fork(target, 1, at)
                    async with sl.LogWriter.open(target) as log:
                        assert (await log.append(b"own")).offset == at
                    await check_fork(target, 1, at + 1)

        run(main())

    def test_inside_of_a_fragment_only_its_first_records_are_copied(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            async with sl.LogWriter.open(source, create=True) as log:
                await log.append_many(bodies(1, 5))
                await log.append_many(bodies(5, 9))
            await fork(source, target, at=7)
            assert await bodies_of(target) == bodies(1, 7)
            async with sl.LogWriter.open(target) as log:
                assert (await log.append(b"7")).offset == 7
            assert await bodies_of(target) == bodies(1, 8)

        run(main())

    def test_neither_sides_collection_hurts_the_other(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            await made(source)
            await fork(source, target)
            await collect_to(source, 8)
            assert await bodies_of(target) == bodies(1, 10)
            await collect_to(target, 4)
            assert await bodies_of(target) == bodies(4, 10)
            assert await bodies_of(source) == bodies(8, 10)
            await sweep(source)
            await sweep(target)
            await check_fork(target, 4, 10)
            await check_fork(source, 8, 10)

        run(main())

    def test_a_fork_that_left_its_source_behind_lets_go_of_it(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            store = await made(source)
            await fork(source, target)
            async with sl.LogWriter.open(target) as log:
                await log.append(b"10")
            await collect_to(source, 9)
            assert await garbage_left(store) != set()
            await collect_to(target, 10)
            manifest, _ = await load_manifest(sl.open_store(target))
            note = note_of(manifest)
            assert note is not None
            assert note.state == "detached"
            assert await PinStore(source).list() == []
            await sl.collect(source, options=AT_ONCE)
            assert await garbage_left(store) == set()
            assert await bodies_of(target) == [b"10"]
            assert await bodies_of(source) == [b"9"]

        run(main())

    @pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
    def test_forks_of_forks_collected_in_every_order(self, order: tuple[int, ...]) -> None:
        async def main() -> None:
            base = f"memory://{uuid.uuid4().hex}"
            urls = [f"{base}/a", f"{base}/b", f"{base}/c"]
            await made(urls[0])
            await fork(urls[0], urls[1], at=8)
            async with sl.LogWriter.open(urls[1]) as log:
                for body in bodies(8, 11):
                    await log.append(body)
            await fork(urls[1], urls[2])
            async with sl.LogWriter.open(urls[2]) as log:
                await log.append(b"11")
            ends = [10, 11, 12]
            starts = [1, 1, 1]
            for which in order:
                for start in (3, 6, ends[which] - 1):
                    await collect_to(urls[which], start)
                    await sweep(urls[which])
                    starts[which] = start
                    for number in range(3):
                        await check_fork(urls[number], starts[number], ends[number])
            for url in reversed(urls):
                await sl.collect(url, options=AT_ONCE)
            for url in urls:
                assert await garbage_left_of_fork(url) == set()

        run(main())

    def test_a_fork_costs_the_same_however_long_the_log(self) -> None:
        async def main() -> None:
            asked = []
            for width in (2, 6):
                leaf: Shape = tuple(LEAF for _ in range(width))
                node: Shape = tuple(leaf for _ in range(width))
                store = MemoryStore()
                await MadeLog((node, node, LEAF), encoded=True).store(PrefixedStore(store, "a"))
                counting = CountingStore(store)
                await fork(PrefixedStore(counting, "a"), PrefixedStore(counting, "b"))
                asked.append(counting.reads + counting.writes)
            assert asked[0] == asked[1]

        run(main())


class TestRefusals:
    def test_a_place_that_is_taken(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            await made(source)
            await made(target)
            with pytest.raises(Exists):
                await fork(source, target)
            with pytest.raises(Invalid, match="its own fork"):
                await fork(source, source)
            assert await PinStore(source).list() == []

        run(main())

    def test_a_point_outside_of_the_log(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            await made(source)
            await collect_to(source, 4)
            with pytest.raises(Trimmed):
                await fork(source, target, at=3)
            with pytest.raises(Invalid):
                await fork(source, target, at=11)
            with pytest.raises(Invalid):
                await fork(source, target, at=0)
            with pytest.raises(NotFound):
                await load_manifest(sl.open_store(target))

        run(main())

    def test_another_store(self) -> None:
        async def main() -> None:
            source = PrefixedStore(MemoryStore(uuid.uuid4().hex), "a")
            await made(source)
            with pytest.raises(Invalid, match="cannot be reached"):
                await fork(source, PrefixedStore(MemoryStore(uuid.uuid4().hex), "b"))

        run(main())

    def test_half_a_fork_is_neither_read_nor_written(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            await made(source)
            gate = GateStore(sl.open_store(source), "pin/")
            forking = asyncio.ensure_future(fork(gate, target))
            await gate.arrived.wait()
            with pytest.raises(Unavailable, match="not complete"):
                await sl.LogReader.open(target, options=sl.ReaderOptions(timeout_s=0.05))
            options = sl.WriterOptions(timeout_s=0.05)
            with pytest.raises(Unavailable, match="not complete"):
                await sl.LogWriter.open(target, options=options)
            gate.open()
            await forking
            assert await bodies_of(target) == bodies(1, 10)

        run(main())


class TestTwoRuns:
    """One run sleeps, another takes the fork over; whoever opens it has a pin that stays."""

    @pytest.mark.parametrize("held", ["pin/", "manifest/"])
    def test_a_sleeper_neither_opens_the_fork_nor_loosens_it(
        self, store_url: str, held: str
    ) -> None:
        async def main() -> None:
            source, target = two(store_url)
            store = await made(source, cursor=1)
            slow = GateStore(sl.open_store(source if held == "pin/" else target), held)
            if held == "manifest/":
                await begin(source, target)
            sleeping = asyncio.ensure_future(
                fork(slow, target) if held == "pin/" else fork(source, slow)
            )
            await slow.arrived.wait()
            opened = await fork(source, target)
            await (await sl.CursorStore(store).load("keeper")).move(9)
            await sl.collect(store, options=AT_ONCE)
            slow.open()
            assert (await sleeping).hold == opened.hold
            assert [pin.name for pin in await PinStore(store).list()] == [opened.hold]
            await sl.collect(store, options=AT_ONCE)
            await check_fork(target, 1, 10)

        run(main())

    def test_many_at_once_make_one_fork(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            store = await made(source)
            forked = await asyncio.gather(*(fork(source, target) for _ in range(4)))
            assert len({each.hold for each in forked}) == 1
            assert [pin.name for pin in await PinStore(store).list()] == [forked[0].hold]
            await check_fork(target, 1, 10)

        run(main())


class TestAborting:
    def test_a_fork_that_was_given_up_does_not_open_any_more(self, store_url: str) -> None:
        """The sleeper has its pin and stops just before it opens the fork."""

        async def main() -> None:
            source, target = two(store_url)
            store = await made(source)
            gate = GateStore(sl.open_store(target), MANIFEST_PATH)
            begun = asyncio.ensure_future(fork(source, gate))
            await gate.arrived.wait()
            gate.open()
            await begun
            with pytest.raises(Conflict, match="open already"):
                await abort_fork(target)
            assert len(await PinStore(store).list()) == 1

        run(main())

    def test_the_pin_goes_after_the_fork_is_aborted(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            store = await made(source)
            gate = GateStore(sl.open_store(source), "pin/")
            sleeping = asyncio.ensure_future(fork(gate, target))
            await gate.arrived.wait()
            await abort_fork(target)
            gate.open()
            with pytest.raises(Conflict, match="given up"):
                await sleeping
            await abort_fork(target)
            assert await PinStore(store).list() == []
            with pytest.raises(Exists, match="given up"):
                await fork(source, target)

        run(main())

    def test_what_is_no_fork_cannot_be_aborted(self) -> None:
        store = run(made(MemoryStore()))
        with pytest.raises(Invalid, match="not a fork"):
            run(abort_fork(store))


class TestCrashes:
    """Every operation on either side, then a run that completes."""

    AT = 6

    def crash(self, base: str, side: str, point: CrashPoint | None) -> list[CrashPoint]:
        source, target = two(base)
        run(made(source, DEEP))

        async def script(store: sl.Store, _: History) -> None:
            pair = (store, target) if side == "source" else (source, store)
            await fork(*pair, at=self.AT)

        url = source if side == "source" else target
        operations = run_until_crash(sl.open_store(url), script, point, History(), Puts())

        async def finish() -> None:
            await fork(source, target, at=self.AT)
            await collect_to(source, 9)
            await check_fork(target, 1, self.AT)
            assert len(await PinStore(source).list()) == 1
            async with sl.LogWriter.open(target) as log:
                await log.append(b"6")
            await collect_to(target, self.AT)
            await sweep(target)
            await sl.collect(source, options=AT_ONCE)
            assert await garbage_left(sl.open_store(source)) == set()
            await check_fork(target, self.AT, self.AT + 1)

        run(finish())
        return sides_of(operations)

    @pytest.mark.parametrize("side", ["source", "target"])
    def test_at_every_operation(self, side: str) -> None:
        points = self.crash(f"memory://{uuid.uuid4().hex}", side, None)
        assert len(points) >= 8
        crash_at_each(points, lambda point: self.crash(f"memory://{uuid.uuid4().hex}", side, point))

    @pytest.mark.parametrize("side", ["source", "target"])
    def test_at_sampled_operations_on_every_store(self, store_url: str, side: str) -> None:
        points = self.crash(f"memory://{uuid.uuid4().hex}", side, None)
        for index, point in enumerate(Random(store_url[:3] + side).sample(points, 3)):
            self.crash(f"{store_url}/{index}", side, point)


async def garbage_left_of_fork(url: StoreLike) -> set[str]:
    """Own parts of a fork that nothing links."""
    store = sl.open_store(url)
    listed = [row.path async for row in store.list()]
    own = {path for path in listed if path.startswith(("log/", "snapshot/"))}
    linked = set()
    async with sl.LogReader.open(store) as reader:
        pending = [*reader.manifest.entries]
        while pending:
            entry = pending.pop()
            linked.add(entry.path)
            if isinstance(entry, sl.SnapshotPointer):
                pending += (await reader._tree.snapshot(entry)).entries
    return own - linked


def test_a_fork_destroyed_under_its_maker_leaves_no_pin() -> None:
    async def main() -> None:
        source, target = two(f"memory://{uuid.uuid4().hex}")
        store = await made(source)
        gate = GateStore(sl.open_store(source), "pin/")
        forking = asyncio.ensure_future(fork(gate, target))
        await gate.arrived.wait()
        await destroy(target)
        gate.open()
        with pytest.raises((Conflict, NotFound)):
            await forking
        assert await PinStore(store).list() == []

    run(main())


def test_a_collection_that_is_faster_than_the_pin_only_shortens_the_fork(store_url: str) -> None:
    async def main() -> None:
        source, target = two(store_url)
        store = await made(source, cursor=4)
        gate = GateStore(sl.open_store(source), "pin/")
        forking = asyncio.ensure_future(fork(gate, target, at=8))
        await gate.arrived.wait()
        await sl.collect(store, options=AT_ONCE)
        gate.open()
        assert (await forking).first_offset == 4
        assert await bodies_of(target) == bodies(4, 8)
        assert len(await PinStore(store).list()) == 1

    run(main())
