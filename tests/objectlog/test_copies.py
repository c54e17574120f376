"""A copy has the records of its source, unchanged, in a log of its own on any store."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from random import Random

import msgspec
import pytest

import stratalog as sl
from objectlog.crashing import CrashPoint, crash_at_each, run_until_crash, sides_of
from objectlog.test_collection import AT_ONCE, DEEP, garbage_left, made
from objectlog.test_forks import bodies, collect_to
from objectlog.trees import LEAF, MadeLog, Shape
from objectlog.whole_log import (
    FakeClock,
    bodies_of,
    check_whole_log,
    depth_of,
    replace_bytes,
    rewrite_manifest,
    rows_of,
    run,
    walk,
)
from objectlog.wrapped_stores import (
    GateStore,
    InspectingStore,
    PassingStore,
    Puts,
    Trick,
    TrickyStore,
    YieldingStore,
)
from stratalog.errors import Corrupt, Denied, Exists, Invalid, NotFound, Trimmed, Unavailable
from stratalog.objectlog.branch.copy import CopyProgress, copy_log
from stratalog.objectlog.branch.fork_log import fork
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.holds.pin import PinStore
from stratalog.objectlog.options import CopyOptions
from stratalog.objectlog.stored.copy_note import CopyNote, copy_note_of
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, load_any_manifest, load_manifest
from stratalog.setsum import EMPTY
from stratalog.store import MemoryStore, StoreLike
from stratalog.store.protocol import Blob, Listed
from stratalog.testing import History

LONG: Shape = tuple(LEAF for _ in range(40))
TRICKS: dict[str, list[Trick]] = {
    "manifest/": ["lost", "dropped", "echoed", "refused"],
    "log/": ["lost", "dropped", "echoed", "refused"],
    "snapshot/": ["lost", "dropped"],
}
EIGHTEEN: Shape = (tuple(LEAF for _ in range(12)), *(LEAF for _ in range(6)))


def memory() -> MemoryStore:
    """A store with a name of its own: a copy tells logs by where they are."""
    return MemoryStore(uuid.uuid4().hex)


def two(base: str) -> tuple[str, str]:
    return f"{base}/source", f"{base}/copy"


async def written(url: StoreLike, batches: int = 4, records: int = 5) -> sl.Store:
    """A log of some fragments with several records each."""
    async with sl.LogWriter.open(url, create=True) as log:
        for first in range(1, batches * records, records):
            await log.append_many(bodies(first, first + records))
    return sl.open_store(url)


async def fragments_of(url: StoreLike) -> list[sl.Fragment]:
    async with sl.LogReader.open(url) as reader:
        return await reader.scan(reader.first_offset)


async def note_at(url: StoreLike) -> CopyNote:
    manifest, _ = await load_any_manifest(sl.open_store(url))
    note = copy_note_of(manifest)
    assert note is not None
    return note


async def check_copy(source: StoreLike, target: StoreLike, first: int, limit: int) -> None:
    """The target holds exactly this stretch, whole, and says that it is done."""
    wanted = [row for row in await rows_of(source) if first <= row[0] < limit]
    assert await check_whole_log(target) == wanted
    note = await note_at(target)
    assert (note.start, note.limit, note.state) == (first, limit, "done")
    manifest, _ = await load_manifest(sl.open_store(target))
    assert manifest.setsum == note.setsum
    assert manifest.first_offset == first
    assert await PinStore(source).list() == []


class Interrupted(Exception):
    """What a test raises in the middle of a copy."""


def interrupt_at(offset: int) -> Callable[[CopyProgress], None]:
    def on_progress(progress: CopyProgress) -> None:
        if progress.next_offset >= offset:
            raise Interrupted

    return on_progress


class TestWhatIsCopied:
    def test_fragments_are_the_same_bytes_under_names_of_the_target(self, store_url: str) -> None:
        async def main() -> None:
            source, target = await made(memory()), sl.open_store(store_url)
            copied = await copy_log(source, target)
            assert (copied.first_offset, copied.limit_offset, copied.fragments) == (1, 10, 9)
            await check_copy(source, target, 1, 10)
            pairs = zip(await fragments_of(source), await fragments_of(target), strict=True)
            for number, (original, copy) in enumerate(pairs, 1):
                assert (await target.get(copy.path)).data == (await source.get(original.path)).data
                assert copy.seq_no == number
                assert (copy.start, copy.limit) == (original.start, original.limit)
                assert (copy.setsum, copy.num_bytes) == (original.setsum, original.num_bytes)
            theirs, _ = await load_manifest(source)
            assert copied.setsum == theirs.setsum

        run(main())

    def test_a_copy_is_a_log_like_any_other(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            await made(source)
            await copy_log(source, target)
            async with sl.LogWriter.open(target) as log:
                assert (await log.append(b"10")).offset == 10
            assert await bodies_of(target) == bodies(1, 11)
            assert await bodies_of(source) == bodies(1, 10)
            await collect_to(target, 5)
            await sweep(target)
            assert [row[0] for row in await check_whole_log(target)] == list(range(5, 11))

        run(main())

    def test_every_stretch_also_inside_of_fragments(self) -> None:
        async def main() -> None:
            source = await written(memory(), batches=3, records=3)
            for first in range(1, 11):
                for limit in range(first, 11):
                    target = memory()
                    copied = await copy_log(source, target, from_offset=first, to_offset=limit)
                    await check_copy(source, target, first, limit)
                    rows = await rows_of(target)
                    items = [o.to_bytes(8) + t.to_bytes(8) + body for o, t, body in rows]
                    assert copied.setsum == sl.Setsum.of(*items)
                    async with sl.LogWriter.open(target) as log:
                        assert (await log.append(b"own")).offset == limit

        run(main())

    def test_whole_fragments_inside_of_a_stretch_are_not_encoded_anew(self) -> None:
        async def main() -> None:
            source, target = await written(memory(), records=3), memory()
            await copy_log(source, target, from_offset=2, to_offset=9)
            ours = [(await target.get(e.path)).data for e in await fragments_of(target)]
            theirs = [(await source.get(e.path)).data for e in await fragments_of(source)]
            assert [data in theirs for data in ours] == [False, True, False]

        run(main())

    def test_a_fork_is_copied_with_what_it_shares(self, store_url: str) -> None:
        async def main() -> None:
            source, forked = two(store_url)
            await made(source)
            await fork(source, forked, at=7)
            async with sl.LogWriter.open(forked) as log:
                await log.append(b"7")
            target = memory()
            await copy_log(forked, target)
            assert [row[2] for row in await check_whole_log(target)] == bodies(1, 8)
            assert all(entry.base is None for entry in await fragments_of(target))

        run(main())

    def test_a_log_without_records_gives_one_that_goes_on_there(self) -> None:
        async def main() -> None:
            source, target = memory(), memory()
            await sl.create_log(source, first_offset=50)
            copied = await copy_log(source, target)
            assert (copied.first_offset, copied.limit_offset, copied.setsum) == (50, 50, EMPTY)
            async with sl.LogWriter.open(target) as log:
                assert (await log.append(b"x")).offset == 50

        run(main())

    @pytest.mark.parametrize("first", [3, 6])
    def test_time_does_not_go_back_where_the_copy_goes_on(self, first: int) -> None:
        """Also if nothing was copied, and the clock of the new writer is behind."""

        async def main() -> None:
            source, target = memory(), memory()
            async with sl.LogWriter.open(source, create=True, runtime=FakeClock(9_000)) as log:
                await log.append_many(bodies(1, 6))
            await copy_log(source, target, from_offset=first)
            async with sl.LogWriter.open(target, runtime=FakeClock(1_000)) as log:
                assert (await log.append(b"late")).timestamp_us == 9_000

        run(main())

    def test_roots_stay_small_and_a_manifest_links_few(self) -> None:
        async def main() -> None:
            source, target = memory(), InspectingStore(memory())
            await MadeLog(tuple(LEAF for _ in range(200)), encoded=True).store(source)
            await copy_log(source, target)
            await check_copy(source, target, 1, 201)
            assert target.manifests == 200 // 8 + 1
            assert await depth_of(target) >= 1

        run(main())


class TestRefusals:
    def test_a_place_that_is_taken(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            await made(source)
            await made(target)
            with pytest.raises(Exists, match="not this copy"):
                await copy_log(source, target)
            with pytest.raises(Invalid, match="its own copy"):
                await copy_log(source, source)
            assert await PinStore(source).list() == []

        run(main())

    def test_another_stretch_or_another_source_is_not_the_same_copy(self) -> None:
        async def main() -> None:
            base = f"memory://{uuid.uuid4().hex}"
            source, target = two(base)
            await made(source)
            await made(f"{base}/other")
            await copy_log(source, target, from_offset=2, to_offset=6)
            for begin, end in ((1, 6), (2, 7), (1, None), (None, 9)):
                with pytest.raises(Exists):
                    await copy_log(source, target, from_offset=begin, to_offset=end)
            with pytest.raises(Exists):
                await copy_log(f"{base}/other", target)
            again = await copy_log(source, target)
            assert (again.first_offset, again.limit_offset, again.fragments) == (2, 6, 0)

        run(main())

    def test_a_stretch_that_is_not_there(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            await made(source)
            await collect_to(source, 4)
            with pytest.raises(Trimmed):
                await copy_log(source, target, from_offset=3)
            for begin, end in ((4, 11), (8, 6), (11, None)):
                with pytest.raises(Invalid):
                    await copy_log(source, target, from_offset=begin, to_offset=end)
            with pytest.raises(Invalid):
                await copy_log(source, target, from_offset=0)
            with pytest.raises(NotFound):
                await copy_log(f"{source}/none", target)
            with pytest.raises(NotFound):
                await load_any_manifest(sl.open_store(target))

        run(main())

    def test_half_a_copy_is_neither_read_nor_written(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            await made(source)
            gate = GateStore(sl.open_store(target), "log/")
            copying = asyncio.ensure_future(copy_log(source, gate))
            await gate.arrived.wait()
            with pytest.raises(Unavailable, match="not complete: copying") as refused:
                await sl.LogReader.open(target)
            assert "Copy it again" in refused.value.hint
            with pytest.raises(Unavailable, match="not complete"):
                await sl.LogWriter.open(target)
            gate.open()
            await copying
            await check_copy(source, target, 1, 10)

        run(main())

    def test_damage_in_the_source_is_not_copied(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            await made(source)
            sixth = (await fragments_of(source))[5]
            store = sl.open_store(source)
            original = (await store.get(sixth.path)).data
            await replace_bytes(source, sixth.path, original[:-20])
            with pytest.raises(Corrupt) as found:
                await copy_log(source, target)
            assert found.value.path == sixth.path
            assert (await note_at(target)).state == "copying"
            await replace_bytes(source, sixth.path, original)
            await copy_log(source, target)
            await check_copy(source, target, 1, 10)

        run(main())

    def test_a_copy_that_does_not_add_up_is_never_done(self) -> None:
        async def main() -> None:
            source, target = await made(memory(), LONG), memory()
            with pytest.raises(Interrupted):
                await copy_log(source, target, on_progress=interrupt_at(9))
            note = await note_at(target)
            other = msgspec.structs.replace(note, setsum=sl.Setsum.of(b"something else"))
            fields = msgspec.json.decode(other.to_json(), type=dict[str, msgspec.Raw])
            await rewrite_manifest(target, lambda m: msgspec.structs.replace(m, copy=fields))
            with pytest.raises(Corrupt, match="does not add up"):
                await copy_log(source, target)
            assert (await note_at(target)).state == "copying"

        run(main())


class TestResuming:
    def test_the_next_run_goes_on_where_the_last_one_stopped(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            await made(source, LONG)
            with pytest.raises(Interrupted):
                await copy_log(source, target, on_progress=interrupt_at(17))
            seen: list[CopyProgress] = []
            copied = await copy_log(source, target, on_progress=seen.append)
            assert copied.fragments == 40 - 16
            assert [each.next_offset for each in seen] == [25, 33, 41]
            assert {(each.first_offset, each.limit_offset) for each in seen} == {(1, 41)}
            await check_copy(source, target, 1, 41)

        run(main())

    def test_what_the_source_got_since_is_not_part_of_it(self) -> None:
        async def main() -> None:
            source, target = await made(memory(), LONG), memory()
            with pytest.raises(Interrupted):
                await copy_log(source, target, on_progress=interrupt_at(9))
            async with sl.LogWriter.open(source) as log:
                await log.append(b"41")
            await copy_log(source, target)
            await check_copy(source, target, 1, 41)

        run(main())

    def test_two_at_once_help_each_other(self) -> None:
        async def main() -> None:
            for turns in range(1, 4):
                source, target = await made(memory(), LONG), memory()
                copies = [
                    copy_log(source, YieldingStore(target, turns)),
                    copy_log(YieldingStore(source), target),
                ]
                both = await asyncio.gather(*copies)
                assert both[0].setsum == both[1].setsum
                await check_copy(source, target, 1, 41)

        run(main())

    @pytest.mark.parametrize("cut", [1, 9, 17])
    def test_a_run_that_slept_while_others_went_on_looks_again(self, cut: int) -> None:
        """It finds a pin that begins after what it believes to be next, or a source that does."""

        class Waiting(PassingStore):
            """Waits before it lists the pins."""

            def __init__(self, inner: sl.Store) -> None:
                super().__init__(inner)
                self.arrived, self.gate = asyncio.Event(), asyncio.Event()

            async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
                self.arrived.set()
                await self.gate.wait()
                async for row in super().list(prefix, after):
                    yield row

        async def main() -> None:
            clock = FakeClock(1_000_000)
            options = CopyOptions(pin_expiry_s=60)
            source, target = await made(memory(), LONG), memory()
            sleepy = Waiting(source)
            copying = asyncio.ensure_future(
                copy_log(sleepy, target, options=options, runtime=clock)
            )
            await sleepy.arrived.wait()
            cursor = await sl.CursorStore(source).create("keeper", min(cut, 9))
            for end in (9, 17):
                with pytest.raises(Interrupted):
                    await copy_log(
                        source,
                        target,
                        on_progress=interrupt_at(end),
                        options=options,
                        runtime=clock,
                    )
                if end == 9:
                    clock.time_us += 61_000_000
                    await sl.collect(source, options=AT_ONCE, runtime=clock)
            await cursor.move(cut)
            await sl.collect(source, options=AT_ONCE, runtime=clock)
            assert [pin.from_offset for pin in await PinStore(source).list()] == [9]
            sleepy.gate.set()
            assert (await copying).fragments == 40 - 16
            assert [row[2] for row in await check_whole_log(target)] == bodies(1, 41)
            assert await PinStore(source).list() == []

        run(main())

    def test_lost_answers_are_settled(self) -> None:
        async def main() -> None:
            for prefix, tricks in TRICKS.items():
                source, inner = await made(memory(), LONG), memory()
                target = TrickyStore(inner, prefix, tricks)
                await copy_log(source, target)
                assert not target.tricks
                await check_copy(source, inner, 1, 41)

        run(main())


class ReadOnly(PassingStore):
    """A source that we may read and not write to."""

    async def put_if_absent(self, path: str, data: bytes) -> str:
        raise Denied(f"{path}: read only", path=path)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        raise Denied(f"{path}: read only", path=path)


class TestTheSourceMeanwhile:
    def test_a_cut_does_not_take_what_is_being_copied(self, store_url: str) -> None:
        async def main() -> None:
            source, target = two(store_url)
            store = await made(source)
            gate = GateStore(sl.open_store(target), "log/")
            copying = asyncio.ensure_future(copy_log(source, gate))
            await gate.arrived.wait()
            await collect_to(source, 9)
            gate.open()
            await copying
            assert await bodies_of(target) == bodies(1, 10)
            assert await PinStore(source).list() == []
            await sl.collect(source, options=AT_ONCE)
            assert await garbage_left(store) == set()

        run(main())

    def test_a_copy_that_was_cut_short_still_holds_what_it_has_not_copied(self) -> None:
        async def main() -> None:
            source, target = await made(memory(), LONG), memory()
            with pytest.raises(Interrupted):
                await copy_log(source, target, on_progress=interrupt_at(9))
            await collect_to(source, 40)
            await copy_log(source, target)
            assert await bodies_of(target) == bodies(1, 41)
            assert await PinStore(source).list() == []

        run(main())

    def test_a_source_that_may_only_be_read_is_copied_without_a_pin(self) -> None:
        async def main() -> None:
            source, target = await made(memory(), LONG), memory()
            await copy_log(ReadOnly(source), target)
            await check_copy(source, target, 1, 41)
            assert [row.path async for row in source.list("pin/")] == []

        run(main())

    def test_without_a_pin_a_cut_ends_the_copy(self) -> None:
        async def main() -> None:
            source, target = await made(memory(), LONG), memory()

            class Cut(ReadOnly):
                async def get(self, path: str) -> Blob:
                    if path == fragments[20].path:
                        await collect_to(source, 40)
                    return await super().get(path)

            fragments = await fragments_of(source)
            for _ in range(2):
                with pytest.raises(Trimmed) as trimmed:
                    await copy_log(Cut(source), target)
                assert trimmed.value.first_offset == 40
            assert (await note_at(target)).state == "copying"

        run(main())

    def test_without_a_pin_a_cut_below_what_is_left_does_no_harm(self) -> None:
        async def main() -> None:
            source, target = await made(memory(), LONG), memory()
            with pytest.raises(Interrupted):
                await copy_log(ReadOnly(source), target, on_progress=interrupt_at(17))
            await collect_to(source, 17)
            await copy_log(ReadOnly(source), target)
            assert [row[2] for row in await check_whole_log(target)] == bodies(1, 41)

        run(main())

    def test_an_object_that_is_gone_although_it_is_linked_is_damage(self) -> None:
        async def main() -> None:
            for wrap in (ReadOnly, PassingStore):
                source, target = await made(memory()), memory()
                (lost,) = (await fragments_of(source))[4:5]
                await source.delete_many([lost.path])
                with pytest.raises(Corrupt, match="is missing") as found:
                    await copy_log(wrap(source), target)
                assert found.value.path == lost.path

        run(main())

    def test_the_pin_of_a_dead_copy_goes_with_its_expiry(self) -> None:
        async def main() -> None:
            clock = FakeClock(1_000_000)
            source, target = await made(memory(), LONG), memory()
            options = CopyOptions(pin_expiry_s=60)
            with pytest.raises(Interrupted):
                await copy_log(
                    source, target, on_progress=interrupt_at(9), options=options, runtime=clock
                )
            clock.time_us += 61_000_000
            await sl.CursorStore(source).create("keeper", 40)
            await sl.collect(source, options=AT_ONCE, runtime=clock)
            assert await PinStore(source).list() == []
            with pytest.raises(Trimmed):
                await copy_log(source, target, options=options, runtime=clock)

        run(main())

    def test_the_pin_of_a_living_copy_is_renewed(self) -> None:
        async def main() -> None:
            clock = FakeClock(1_000_000)
            source, target = await made(memory(), LONG), memory()

            def time_passes(_: CopyProgress) -> None:
                clock.time_us += 40_000_000

            expiries: set[int | None] = set()

            class Watched(PassingStore):
                async def get(self, path: str) -> Blob:
                    expiries.update(pin.expires_us for pin in await PinStore(source).list())
                    return await super().get(path)

            options = CopyOptions(pin_expiry_s=60, fragments_max=1)
            await copy_log(
                Watched(source), target, on_progress=time_passes, options=options, runtime=clock
            )
            await check_copy(source, target, 1, 41)
            assert len(expiries) >= 40
            assert None not in expiries

        run(main())


class BusyStore(PassingStore):
    """Counts the fragments and their bytes that are being stored at one time."""

    def __init__(self, inner: sl.Store) -> None:
        super().__init__(inner)
        self.under_way: dict[str, int] = {}
        self.most = self.most_bytes = 0

    async def put_if_absent(self, path: str, data: bytes) -> str:
        if not path.startswith("log/"):
            return await super().put_if_absent(path, data)
        self.under_way[path] = len(data)
        self.most = max(self.most, len(self.under_way))
        self.most_bytes = max(self.most_bytes, sum(self.under_way.values()))
        await asyncio.sleep(0.001)
        del self.under_way[path]
        return await super().put_if_absent(path, data)


class TestHowMuchIsUnderWay:
    def test_several_at_once_and_no_more_than_allowed(self) -> None:
        async def main() -> None:
            source = await made(memory(), LONG)
            largest = max(entry.num_bytes for entry in await fragments_of(source))
            for options, most in (
                (CopyOptions(fragments_max=5), 5),
                (CopyOptions(fragments_max=1), 1),
                (CopyOptions(bytes_max=3 * largest), 3),
                (CopyOptions(bytes_max=1), 1),
            ):
                target = BusyStore(memory())
                await copy_log(source, target, options=options)
                assert target.most == most
                assert target.most_bytes <= most * largest
                await check_copy(source, target.inner, 1, 41)

        run(main())

    @pytest.mark.parametrize(
        "wrong", [{"fragments_max": 0}, {"bytes_max": 0}, {"pin_expiry_s": 0}, {"timeout_s": "1"}]
    )
    def test_options_that_cannot_be(self, wrong: dict[str, int]) -> None:
        with pytest.raises(Invalid):
            CopyOptions(**wrong)


class TestCrashes:
    """Every operation on either side, then a run that completes."""

    def crash(self, base: str, side: str, point: CrashPoint | None) -> list[CrashPoint]:
        source, target = two(base)
        run(MadeLog(EIGHTEEN, records=3, encoded=True).store(sl.open_store(source)))

        async def script(store: sl.Store, _: History) -> None:
            pair = (store, target) if side == "source" else (source, store)
            await copy_log(*pair, from_offset=2, to_offset=54)

        url = source if side == "source" else target
        puts = Puts()
        operations = run_until_crash(sl.open_store(url), script, point, History(), puts)

        async def finish() -> None:
            await collect_to(source, 2)
            await copy_log(source, target, from_offset=2, to_offset=54)
            await check_copy(source, target, 2, 54)
            await sweep(target)
            stored = {row.path async for row in sl.open_store(target).list("log/")}
            linked = {entry.path async for entry in walk(sl.open_store(target))}
            assert stored <= linked, "a sweep leaves nothing behind"
            await collect_to(source, 55)
            assert await garbage_left(sl.open_store(source)) == set()
            await check_whole_log(target)

        run(finish())
        puts.check_names_were_used_once()
        return sides_of(operations)

    @pytest.mark.parametrize("side", ["source", "target"])
    def test_at_every_operation(self, side: str) -> None:
        points = self.crash(f"memory://{uuid.uuid4().hex}", side, None)
        assert len(points) >= 30
        crash_at_each(points, lambda point: self.crash(f"memory://{uuid.uuid4().hex}", side, point))

    @pytest.mark.parametrize("side", ["source", "target"])
    def test_at_sampled_operations_on_every_store(self, store_url: str, side: str) -> None:
        points = self.crash(f"memory://{uuid.uuid4().hex}", side, None)
        for index, point in enumerate(Random(store_url[:3] + side).sample(points, 3)):
            self.crash(f"{store_url}/{index}", side, point)


def test_the_manifest_of_a_copy_is_where_its_note_is() -> None:
    async def main() -> None:
        source, target = await made(memory(), DEEP), memory()
        await copy_log(source, target, from_offset=2, to_offset=5)
        stored = msgspec.json.decode((await target.get(MANIFEST_PATH)).data)
        assert list(stored["copy"]) == ["source", "from", "to", "setsum", "id", "state"]
        assert (stored["copy"]["from"], stored["copy"]["to"]) == (2, 5)

    run(main())
