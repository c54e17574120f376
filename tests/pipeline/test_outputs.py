"""The protocol of OUTPUT: every record is merged once, whoever crashes, races or tidies, and where.

No Spark here. A worker merges by putting together lists of offsets, so what an output holds can be
told from its files.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import pytest

import stratalog as sl
from objectlog.crashing import CrashPoint, run_until_crash, sides_of
from objectlog.whole_log import collect_roots, run
from objectlog.wrapped_stores import CountingStore, GateStore, Puts, Trick, TrickyStore
from stratalog.errors import (
    Conflict,
    Corrupt,
    Invalid,
    NotFound,
    StratalogError,
    Trimmed,
    Unavailable,
    Unknown,
)
from stratalog.herd import Herd
from stratalog.herd.names import log_store
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, decode_manifest
from stratalog.pipeline.outputs import Outputs, load_output, tidy_outputs
from stratalog.pipeline.outputs.output import Output, OutputFile, decode_output, folder_of
from stratalog.pipeline.outputs.publish import OutputState
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import MemoryStore
from stratalog.store.cas import Patience, put_once
from stratalog.store.prefixed import PrefixedStore
from stratalog.store.protocol import Store
from stratalog.testing import Faults, History, Simulation, StoreCall, simulate

JOB = "latest"
SCHEMA = '{"type":"struct","fields":[]}'
SEEDS = 60


async def made(root: Store) -> str:
    """A log in a herd; gives its id."""
    async with Herd.open(root, server="a") as herd:
        return await (await herd.create("orders")).id()


async def appended(root: Store, log_id: str, records: int = 2) -> None:
    """Records, each in a fragment of its own."""
    async with sl.LogWriter.open(log_store(root, log_id)) as log:
        for _ in range(records):
            await log.append(b"record")


class Worker:
    """What ``materialize`` does for one log, without Spark."""

    def __init__(self, root: Store, runtime: Runtime = DEFAULT_RUNTIME) -> None:
        self.root = root
        self.runtime = runtime
        self.outputs = Outputs(root, JOB, runtime=runtime)
        self.run = runtime.new_id()
        self.uploads = 0

    async def merge(self, log_id: str) -> Output | None:
        """Look, upload, publish. None if nothing was new."""
        state, _ = await self.outputs.look(log_id)
        if not state.records:
            if state.is_behind and state.output is not None:
                await self.outputs.advance(state, state.output)
            return None
        before = await offsets_in(self.root, state.output)
        files = await self.upload(log_id, [*before, *range(state.start, state.limit)])
        return await self.outputs.publish(state, files, SCHEMA)

    async def upload(self, log_id: str, offsets: list[int]) -> list[OutputFile]:
        """Two files, so that half an output would show."""
        half = len(offsets) // 2
        return [await self._put(log_id, part) for part in (offsets[:half], offsets[half:]) if part]

    async def _put(self, log_id: str, offsets: list[int]) -> OutputFile:
        data = json.dumps(offsets).encode()
        folder = PrefixedStore(self.root, folder_of(JOB, log_id))
        path = await put_once(folder, self._name, data, Patience(self.runtime, 60.0))
        return OutputFile(
            path=path,
            rows=len(offsets),
            num_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
        )

    def _name(self) -> str:
        self.uploads += 1
        return f"{self.run}-{self.uploads}.parquet"


async def offsets_in(root: Store, output: Output | None) -> list[int]:
    """The records that an output holds, read from its files."""
    found: list[int] = []
    for file in output.files if output is not None else ():
        blob = await root.get(f"{folder_of(JOB, output.log_id)}/{file.path}" if output else "")
        found += json.loads(blob.data)
    return found


async def stored_output(root: Store, log_id: str) -> Output | None:
    path = f"{folder_of(JOB, log_id)}/OUTPUT"
    try:
        return decode_output((await root.get(path)).data, path)
    except NotFound:
        return None


async def stored_files(root: Store, log_id: str) -> set[str]:
    folder = folder_of(JOB, log_id)
    return {row.path.removeprefix(f"{folder}/") async for row in root.list(f"{folder}/")} - {
        "OUTPUT"
    }


async def cursor_at(root: Store, log_id: str) -> int | None:
    try:
        return (await sl.CursorStore(log_store(root, log_id)).load("compaction")).offset
    except NotFound:
        return None


async def check_in_between(root: Store, log_id: str) -> None:
    """What holds at every moment: an output is whole, and the cursor is not beyond it."""
    output = await stored_output(root, log_id)
    if output is None:
        assert await cursor_at(root, log_id) is None
        return
    assert output.names <= await stored_files(root, log_id), "a file that may be read is gone"
    if output.is_published:
        assert await offsets_in(root, output) == [*range(1, output.upto)]
    assert (await cursor_at(root, log_id) or 0) <= output.upto


async def check_at_rest(root: Store, log_id: str) -> Output:
    """After a run that ended and a tidying: all is merged, and nothing is left over."""
    await Worker(root).merge(log_id)
    await tidy_outputs(root, JOB, log_id)
    await check_in_between(root, log_id)
    output = await load_output(root, JOB, log_id)
    tail = (await Outputs(root, JOB).look(log_id))[0].limit
    assert (output.upto, await cursor_at(root, log_id)) == (tail, tail)
    assert await stored_files(root, log_id) == output.names
    return output


async def merged_thrice(versions: int = 3) -> tuple[MemoryStore, str]:
    """A log whose output has a former version, and two records that are not merged yet."""
    root = MemoryStore()
    log_id = await made(root)
    for _ in range(versions):
        await appended(root, log_id)
        await Worker(root).merge(log_id)
    await appended(root, log_id)
    return root, log_id


class TestPublication:
    def test_an_output_grows_with_its_log_and_moves_the_cursor(self, store_url: str) -> None:
        async def main() -> None:
            root = sl.open_store(store_url)
            log_id = await made(root)
            assert await Worker(root).merge(log_id) is None
            assert await cursor_at(root, log_id) is None, "an empty log costs nothing"
            for version in (1, 2, 3):
                await appended(root, log_id)
                output = await Worker(root).merge(log_id)
                assert output is not None
                assert (output.version, output.upto) == (version, 1 + 2 * version)
                assert (output.log, output.rows) == ("orders", 2 * version)
                await check_in_between(root, log_id)
                assert await cursor_at(root, log_id) == output.upto
            assert await Worker(root).merge(log_id) is None

        run(main())

    def test_the_version_before_stays_readable_and_older_ones_go(self) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice(1)
            first = await load_output(root, JOB, log_id)
            second = await Worker(root).merge(log_id)
            assert second is not None
            assert second.former == first.files
            assert await offsets_in(root, first) == [1, 2]
            await appended(root, log_id)
            third = await Worker(root).merge(log_id)
            assert third is not None
            assert await stored_files(root, log_id) == third.names
            assert not first.names & third.names

        run(main())

    def test_of_two_workers_one_wins_and_nothing_is_lost(self) -> None:
        async def main() -> None:
            for versions in (0, 3):
                root, log_id = await merged_thrice(versions)
                slow = GateStore(root, f"{folder_of(JOB, log_id)}/OUTPUT")
                late = asyncio.create_task(Worker(slow).merge(log_id))
                await slow.arrived.wait()
                await appended(root, log_id)
                fast = await Worker(root).merge(log_id)
                assert fast is not None
                slow.open()
                with pytest.raises(Conflict, match="was changed since it was loaded"):
                    await late
                assert await load_output(root, JOB, log_id) == fast
                assert await cursor_at(root, log_id) == fast.upto
                assert len(await stored_files(root, log_id) - fast.names) == 2
                await check_at_rest(root, log_id)

        run(main())

    def test_a_worker_that_wakes_up_late_does_not_move_the_cursor_back(self) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice()
            slow = GateStore(root, f"logs/{log_id}/cursor/")
            late = asyncio.create_task(Worker(slow).merge(log_id))
            await slow.arrived.wait()
            await appended(root, log_id)
            newest = await Worker(root).merge(log_id)
            assert newest is not None
            slow.open()
            assert await late is not None
            assert await cursor_at(root, log_id) == newest.upto
            await check_at_rest(root, log_id)

        run(main())

    @pytest.mark.parametrize("trick", ["lost", "echoed"])
    def test_a_lost_answer_is_settled(self, trick: Trick) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice()
            path = f"{folder_of(JOB, log_id)}/OUTPUT"
            output = await Worker(TrickyStore(root, path, [trick])).merge(log_id)
            assert output is not None
            assert await load_output(root, JOB, log_id) == output
            assert await cursor_at(root, log_id) == output.upto

        run(main())

    @pytest.mark.parametrize("trick", ["lost", "echoed"])
    def test_it_is_recognised_below_the_next_version_too(self, trick: Trick) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice()

            async def meanwhile() -> None:
                await appended(root, log_id)
                await Worker(root).merge(log_id)

            path = f"{folder_of(JOB, log_id)}/OUTPUT"
            tricky = TrickyStore(root, path, [trick], meanwhile)
            output = await Worker(tricky).merge(log_id)
            assert output is not None
            newest = await load_output(root, JOB, log_id)
            assert newest.former == output.files
            await check_at_rest(root, log_id)

        run(main())

    def test_fields_that_are_not_known_are_kept(self) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice()
            path = f"{folder_of(JOB, log_id)}/OUTPUT"
            blob = await root.get(path)
            changed = {**json.loads(blob.data), "write_id": "other", "colour": "green"}
            await root.put_if_match(path, json.dumps(changed).encode(), blob.etag)
            await Worker(root).merge(log_id)
            assert json.loads((await root.get(path)).data)["colour"] == "green"

        run(main())


class TestLooking:
    def test_a_log_without_news_costs_three_reads_and_no_write(self) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice()
            await Worker(root).merge(log_id)
            counting = CountingStore(root)
            assert await Worker(counting).merge(log_id) is None
            assert counting.counts == {"get": 3}

        run(main())

    def test_an_output_ahead_of_the_cursor_only_moves_the_cursor(self) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice()
            cursors = sl.CursorStore(log_store(root, log_id))
            await Worker(root).merge(log_id)
            before = await load_output(root, JOB, log_id)
            for is_deleted in (False, True):
                cursor = await cursors.load("compaction")
                await (cursor.delete() if is_deleted else cursor.move(3))
                state, _ = await Outputs(root, JOB).look(log_id)
                assert state.is_behind
                assert await Worker(root).merge(log_id) is None
                assert await cursor_at(root, log_id) == before.upto
            assert await load_output(root, JOB, log_id) == before

        run(main())

    def test_a_cursor_that_something_else_moves_is_told(self) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice()
            cursors = sl.CursorStore(log_store(root, log_id))
            await (await cursors.load("compaction")).move(9)
            with pytest.raises(Conflict, match="something else moves it") as caught:
                await Worker(root).merge(log_id)
            assert "a cursor of its own" in caught.value.hint

        run(main())

    def test_the_cursor_of_another_job_is_refused_before_anything_is_merged(self) -> None:
        """It would let go of what that job has not merged yet."""

        async def main() -> None:
            root, log_id = await merged_thrice()
            await appended(root, log_id, 4)
            with pytest.raises(Conflict, match="belongs to the job") as caught:
                await Outputs(root, "other").look(log_id)
            assert "a cursor of its own" in caught.value.hint
            assert await Worker(root).merge(log_id) is not None

        run(main())

    def test_another_job_with_another_cursor_does_not_get_in_the_way(self) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice()
            other = Outputs(root, "other", cursor="other")
            state, _ = await other.look(log_id)
            assert (state.start, state.limit) == (1, 9)
            await other.publish(state, [], SCHEMA)
            output = await Worker(root).merge(log_id)
            assert output is not None
            assert output.upto == 9

        run(main())

    def test_records_that_were_collected_before_they_were_merged_are_told(self) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice()
            await appended(root, log_id, 4)
            await collect_roots(log_store(root, log_id), 9)
            with pytest.raises(Trimmed, match="collected before they were merged") as caught:
                await Worker(root).merge(log_id)
            assert caught.value.first_offset == 10

        run(main())

    def test_a_log_that_lost_its_end_is_told(self) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice()
            await Worker(root).merge(log_id)
            store = log_store(root, log_id)
            blob = await store.get(MANIFEST_PATH)
            manifest = decode_manifest(blob.data)
            shorter = msgspec.structs.replace(
                manifest, fragments=manifest.fragments[:-1], write_id="shorter"
            )
            total = sl.Setsum.total(entry.setsum for entry in shorter.entries)
            shorter = msgspec.structs.replace(shorter, setsum=total)
            await store.put_if_match(MANIFEST_PATH, shorter.to_json(), blob.etag)
            with pytest.raises(Corrupt, match="ends at 8"):
                await Worker(root).merge(log_id)

        run(main())

    def test_a_log_that_is_gone_is_not_found(self) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice()
            async with Herd.open(root, server="a") as herd:
                await herd.drop("orders")
            with pytest.raises(NotFound):
                await Worker(root).merge(log_id)

        run(main())

    @pytest.mark.parametrize("job", ["", "a/b", "../x", "-x", "x" * 129])
    def test_a_job_is_named_like_a_log(self, job: str) -> None:
        with pytest.raises(Invalid, match="not a name of a job"):
            Outputs(MemoryStore(), job)


class TestTidying:
    def test_it_deletes_what_nothing_names_and_keeps_the_rest(self, store_url: str) -> None:
        async def main() -> None:
            root = sl.open_store(store_url)
            log_id = await made(root)
            for _ in range(3):
                await appended(root, log_id)
                await Worker(root).merge(log_id)
            before = await load_output(root, JOB, log_id)
            left = await Worker(root).upload(log_id, [1, 2, 3])
            stranger = f"{folder_of(JOB, log_id)}/notes.txt"
            await root.put_if_absent(stranger, b"mine")
            assert set(await tidy_outputs(root, JOB, log_id)) == {file.path for file in left}
            assert await stored_files(root, log_id) == {*before.names, "notes.txt"}
            after = await load_output(root, JOB, log_id)
            assert after.write_id != before.write_id
            assert msgspec.structs.replace(after, write_id=before.write_id) == before

        run(main())

    def test_it_changes_nothing_where_nothing_is_left_over(self) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice()
            counting = CountingStore(root)
            assert await tidy_outputs(counting, JOB, log_id) == ()
            assert counting.writes == 0
            assert await tidy_outputs(counting, JOB, "0" * 32) == ()
            assert counting.writes == 0

        run(main())

    @pytest.mark.parametrize("versions", [0, 3])
    def test_a_slow_publisher_loses_its_files_and_its_publication(self, versions: int) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice(versions)
            slow = GateStore(root, f"{folder_of(JOB, log_id)}/OUTPUT")
            late = asyncio.create_task(Worker(slow).merge(log_id))
            await slow.arrived.wait()
            assert len(await tidy_outputs(root, JOB, log_id)) == 2
            slow.open()
            with pytest.raises(Conflict):
                await late
            await check_in_between(root, log_id)
            await check_at_rest(root, log_id)

        run(main())

    @pytest.mark.parametrize("versions", [0, 3])
    def test_a_publication_that_comes_first_keeps_its_files(self, versions: int) -> None:
        """Also if the tidying cannot tell at first that it was too late."""

        async def main() -> None:
            tricks: tuple[Trick, ...] = ("refused", "dropped", "lost")
            for trick in tricks:
                root, log_id = await merged_thrice(versions)
                slow = GateStore(root, f"{folder_of(JOB, log_id)}/OUTPUT")
                late = asyncio.create_task(Worker(slow).merge(log_id))
                await slow.arrived.wait()

                async def meanwhile(
                    slow: GateStore = slow, late: asyncio.Task[Output | None] = late
                ) -> None:
                    slow.open()
                    await asyncio.wait([late])

                path = f"{folder_of(JOB, log_id)}/OUTPUT"
                tricky = TrickyStore(root, path, [trick], meanwhile)
                await tidy_outputs(tricky, JOB, log_id)
                await check_in_between(root, log_id)
                await asyncio.gather(late, return_exceptions=True)
                await check_at_rest(root, log_id)

        run(main())

    def test_an_output_that_it_made_begins_where_the_log_begins_then(self) -> None:
        async def main() -> None:
            root, log_id = await merged_thrice(0)
            await Worker(root).upload(log_id, [1])
            assert len(await tidy_outputs(root, JOB, log_id)) == 1
            with pytest.raises(NotFound, match="has no output"):
                await load_output(root, JOB, log_id)
            await collect_roots(log_store(root, log_id), 1)
            state, _ = await Outputs(root, JOB).look(log_id)
            assert (state.start, state.is_behind) == (2, False)

        run(main())


class TestCrashes:
    """Before and after every store operation; the next run completes the work."""

    @pytest.mark.parametrize("versions", [0, 1, 3])
    def test_of_a_worker(self, versions: int) -> None:
        async def work(store: Store, log_id: str) -> None:
            await Worker(store).merge(log_id)

        self.crash_everywhere(versions, work, operations_min=8)

    @pytest.mark.parametrize("versions", [0, 3])
    def test_of_a_tidying(self, versions: int) -> None:
        async def work(store: Store, log_id: str) -> None:
            await tidy_outputs(store, JOB, log_id)

        async def prepare(root: Store, log_id: str) -> None:
            await Worker(root).upload(log_id, [1, 2])

        self.crash_everywhere(versions, work, prepare, operations_min=4)

    def test_of_a_worker_that_finds_the_cursor_behind(self) -> None:
        async def work(store: Store, log_id: str) -> None:
            await Worker(store).merge(log_id)

        async def prepare(root: Store, log_id: str) -> None:
            await Worker(root).merge(log_id)
            cursors = sl.CursorStore(log_store(root, log_id))
            await (await cursors.load("compaction")).move(3)

        self.crash_everywhere(3, work, prepare, operations_min=5)

    def crash_everywhere(
        self,
        versions: int,
        work: Callable[[Store, str], Awaitable[None]],
        prepare: Callable[[Store, str], Awaitable[None]] | None = None,
        *,
        operations_min: int,
    ) -> None:
        async def prepared() -> tuple[MemoryStore, str]:
            root, log_id = await merged_thrice(versions)
            if prepare is not None:
                await prepare(root, log_id)
            return root, log_id

        def live(point: CrashPoint | None) -> list[StoreCall]:
            root, log_id = run(prepared())

            async def script(store: Store, _: History) -> None:
                await work(store, log_id)

            operations = run_until_crash(root, script, point, History(), Puts())
            run(check_in_between(root, log_id))
            output = run(check_at_rest(root, log_id))
            assert output.upto == 3 + 2 * versions, point
            return operations

        points = sides_of(live(None))
        assert len(points) >= 2 * operations_min
        for point in points:
            live(point)


async def crowd(simulation: Simulation) -> int:
    """Workers, a writer and a tidier, each with faults and pauses of its own; some crash."""
    root, random = MemoryStore(), simulation.random
    log_id = await made(root)
    published = 0
    surprises: list[StratalogError] = []

    async def forever(work: Callable[[], Awaitable[object]]) -> None:
        nonlocal published
        while True:
            try:
                published += isinstance(await work(), Output)
            except (Conflict, NotFound, Unknown, Unavailable):
                pass  # overtaken, or what it has read about is gone when it reads the next thing
            except StratalogError as error:
                surprises.append(error)
            await asyncio.sleep(random.uniform(0.0, 2.0))

    def start(name: str) -> None:
        node = simulation.node(name, root, Faults.swarm(random))
        if name.startswith("tidier"):
            node.spawn(forever(lambda: tidy_outputs(node.store, JOB, log_id, runtime=node.runtime)))
        else:
            node.spawn(forever(lambda: Worker(node.store, node.runtime).merge(log_id)))
        if random.random() < 0.3:
            node.crash_at(random.randrange(1, 60), random.choice(["before", "after"]))

    for name in ("worker-1", "worker-2", "tidier-1"):
        start(name)
    for turn in range(8):
        await asyncio.sleep(random.uniform(0.0, 5.0))
        await appended(root, log_id, random.randrange(1, 4))
        await check_in_between(root, log_id)
        if random.random() < 0.5:
            random.choice(simulation.nodes).pause(random.uniform(0.0, 10.0))
        if random.random() < 0.3:
            start(random.choice(["worker", "tidier"]) + f"-late-{turn}")
    await asyncio.sleep(random.uniform(0.0, 20.0))
    for node in simulation.nodes:
        node.crash()
    await simulation.settle()
    await check_in_between(root, log_id)
    await check_at_rest(root, log_id)
    assert not surprises
    assert [each for each in simulation.unhandled if "Crashed(" not in each] == []
    return published


class TestSimulation:
    @pytest.mark.parametrize("first_seed", range(0, SEEDS, 10))
    def test_every_record_is_merged_once_whatever_happens(self, first_seed: int) -> None:
        published = [simulate(crowd, seed) for seed in range(first_seed, first_seed + 10)]
        assert sum(published) > 10, "it was tried at all"

    def test_tidying_without_changing_the_output_would_be_noticed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def tidy_at_once(self: Outputs, log_id: str) -> tuple[str, ...]:
            found = await self._document(log_id).read()
            listed = [row.path async for row in self._folder(log_id).list()]
            names = {"OUTPUT"} if found is None else {"OUTPUT", *found.value.names}
            await self._delete(log_id, [name for name in listed if name not in names])
            return ()

        monkeypatch.setattr(Outputs, "tidy", tidy_at_once)
        assert self.is_noticed()

    def test_moving_the_cursor_before_the_publication_would_be_noticed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish = Outputs.publish

        async def move_then_publish(
            self: Outputs, standing: OutputState, files: Sequence[OutputFile], schema_json: str
        ) -> Output:
            cursor = await self._load_cursor(standing.log_id)
            if cursor is None:
                await self._cursors(standing.log_id).create("compaction", standing.limit)
            else:
                await cursor.move(standing.limit)
            return await publish(self, standing, files, schema_json)

        monkeypatch.setattr(Outputs, "publish", move_then_publish)
        assert self.is_noticed()

    def test_deleting_the_former_version_would_be_noticed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def forget_more(self: Outputs, before: Output, output: Output) -> None:
            await self._delete(output.log_id, sorted(before.names))

        monkeypatch.setattr(Outputs, "_forget", forget_more)
        assert self.is_noticed()

    def is_noticed(self) -> bool:
        for seed in range(SEEDS):
            try:
                simulate(crowd, seed)
            except (AssertionError, StratalogError):
                return True
        return False


GOLDEN = (
    b'{"log":"orders","log_id":"00112233445566778899aabbccddeeff","upto":7,"version":2,'
    b'"schema":{"type":"struct","fields":[]},'
    b'"files":[{"path":"ab12-1.parquet","rows":3,"num_bytes":100,"sha256":"00ff"}],'
    b'"former":[{"path":"cd34-2.parquet","rows":1,"num_bytes":50,"sha256":"ff00"}],'
    b'"format":"1.0","write_id":"0123456789ab"}'
)


class TestStoredForm:
    def test_it_is_stable_byte_for_byte(self) -> None:
        output = decode_output(GOLDEN, "OUTPUT")
        assert output.to_json() == GOLDEN
        assert output.schema_json == SCHEMA
        assert (output.rows, output.num_bytes) == (3, 100)
        assert output.names == {"ab12-1.parquet", "cd34-2.parquet"}

    @pytest.mark.parametrize(
        "name", ["../../logs/x/manifest/MANIFEST", "OUTPUT", "ab-1.parquet/x", "", "ab.parquet"]
    )
    def test_it_cannot_name_what_is_no_file_of_an_output(self, name: str) -> None:
        changed = json.loads(GOLDEN)
        changed["former"][0]["path"] = name
        with pytest.raises(Corrupt, match="no file of an output"):
            decode_output(json.dumps(changed).encode(), "OUTPUT")

    @pytest.mark.parametrize("cut", [0, 1, 20, len(GOLDEN) - 1])
    def test_half_of_it_is_corrupt(self, cut: int) -> None:
        with pytest.raises(Corrupt):
            decode_output(GOLDEN[:cut], "OUTPUT")

    def test_a_newer_format_is_refused(self) -> None:
        with pytest.raises(Invalid, match="format"):
            decode_output(GOLDEN.replace(b'"1.0"', b'"2.0"'), "OUTPUT")
