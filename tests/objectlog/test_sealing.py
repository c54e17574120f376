"""Behaviour 20: a log that ends has one last position, and goes on in one place."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from random import Random

import pytest

import stratalog as sl
from objectlog.crashing import CrashPoint, When, run_until_crash, sides_of
from objectlog.whole_log import bodies_of, check_whole_log, run
from objectlog.wrapped_stores import GateStore, Puts, TrickyStore
from s3_server import S3Server
from stratalog.errors import Conflict, Exists, Invalid, NotFound, Sealed
from stratalog.objectlog.branch.seal_log import Sealer
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, Manifest, load_manifest
from stratalog.objectlog.stored.seal import Link, predecessor_of
from stratalog.store import MemoryStore, locate
from stratalog.testing import History


async def filled(url: str | sl.Store, records: int = 3) -> sl.Store:
    store = sl.open_store(url)
    async with sl.LogWriter.open(store, create=True) as log:
        for number in range(1, records + 1):
            await log.append(b"%d" % number)
    return store


async def named_only(old: str, new: str) -> None:
    """A migration that was killed after it had named the successor."""

    class Killed(Exception):
        pass

    class Dying(Sealer):
        async def _begin(self, store: sl.Store, ended: Manifest, named: Link) -> None:
            raise Killed

    with pytest.raises(Killed):
        await Dying(old).migrate(new)


async def followed(url: str) -> list[bytes]:
    async with sl.LogReader.open(url) as reader:
        return [
            body
            async for batch in reader.follow(1, idle_timeout_s=0)
            for body in batch.column("body").to_pylist()
        ]


class TestBehaviour20Seal:
    def test_after_it_every_append_fails(self, store_url: str) -> None:
        async def main() -> None:
            store = await filled(store_url)
            async with sl.LogWriter.open(store) as log:
                end = await Sealer(store).seal("moved")
                assert end.offset == 4
                with pytest.raises(Sealed) as refusal:
                    await log.append(b"late")
                assert refusal.value.actual == 4
            async with sl.LogWriter.open(store) as log:
                with pytest.raises(Sealed):
                    await log.append_many([b"late"])
            assert await bodies_of(store) == [b"1", b"2", b"3"]
            seal = await Sealer(store).state()
            assert seal is not None
            assert (seal.note, seal.successor) == ("moved", None)

        run(main())

    def test_a_second_seal_changes_nothing_and_tells_the_same_end(self, store_url: str) -> None:
        async def main() -> None:
            store = await filled(store_url)
            first = await Sealer(store).seal("first")
            before, _ = await load_manifest(store)
            assert await Sealer(store).seal("second") == first
            assert (await load_manifest(store))[0] == before

        run(main())

    @pytest.mark.parametrize("seed", range(6))
    def test_a_race_with_appends_leaves_one_definite_end(self, store_url: str, seed: int) -> None:
        if seed > 1 and not store_url.startswith("memory"):
            pytest.skip("two seeds are enough here")

        async def main() -> None:
            store = await filled(store_url)
            acknowledged: list[int] = []
            async with sl.LogWriter.open(store) as log:

                async def appender() -> None:
                    with contextlib.suppress(Sealed):
                        while True:
                            acknowledged.append((await log.append(b"x")).offset)

                appending = asyncio.gather(*(appender() for _ in range(4)))
                for _ in range(Random(seed).randrange(20)):
                    await asyncio.sleep(0)
                ends = await asyncio.gather(*(Sealer(store).seal() for _ in range(2)))
                await appending
            assert ends[0] == ends[1]
            rows = await check_whole_log(store)
            assert [row[0] for row in rows] == list(range(1, ends[0].offset))
            assert sorted(acknowledged) == list(range(4, ends[0].offset))

        run(main())

    def test_an_append_whose_answer_was_lost_is_settled_under_the_seal(self) -> None:
        async def main() -> None:
            honest = await filled(MemoryStore())

            async def seal() -> None:
                await Sealer(honest).seal()

            store = TrickyStore(honest, MANIFEST_PATH, ["lost"], meanwhile=seal)
            async with sl.LogWriter.open(store) as log:
                assert (await log.append(b"4")).offset == 4
                with pytest.raises(Sealed):
                    await log.append(b"5")
            assert await bodies_of(honest) == [b"1", b"2", b"3", b"4"]

        run(main())

    def test_a_sealed_log_is_still_collected(self, store_url: str) -> None:
        async def main() -> None:
            store = await filled(store_url)
            await Sealer(store).seal()
            await sl.CursorStore(store).create("keeper", 3)
            await sl.collect(store, options=sl.CollectorOptions(interval_s=0.0))
            assert await bodies_of(store) == [b"3"]
            assert await Sealer(store).state() is not None

        run(main())

    def test_there_is_nothing_to_seal(self) -> None:
        with pytest.raises(NotFound):
            run(Sealer(MemoryStore()).seal())

    @pytest.mark.parametrize("note", ["x" * 1001, "\udcff", b"bytes", None])
    def test_a_note_that_is_none(self, note: str) -> None:
        store = run(filled(MemoryStore()))
        with pytest.raises(Invalid, match="a note is text"):
            run(Sealer(store).seal(note))
        with pytest.raises(Invalid, match="a note is text"):
            run(Sealer(store).migrate(MemoryStore("elsewhere"), note))
        assert run(Sealer(store).state()) is None


class TestBehaviour20Successor:
    def test_it_starts_at_the_next_offset_and_readers_follow_across(self, store_url: str) -> None:
        async def main() -> None:
            old, new = f"{store_url}/old", f"{store_url}/new"
            await filled(old)
            async with sl.LogReader.open(old) as reader:
                begins = await Sealer(old).migrate(new, "a larger bucket")
                assert begins.offset == 4
                async with sl.LogWriter.open(new) as log:
                    position = await log.append(b"4")
                    assert position.offset == 4
                    assert position.timestamp_us >= begins.timestamp_us
                seen = [
                    row
                    async for batch in reader.follow(1, idle_timeout_s=0.2)
                    for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
                ]
            assert [(row[0], row[2]) for row in seen] == [(n, b"%d" % n) for n in range(1, 5)]
            await check_whole_log(new)
            manifest, _ = await load_manifest(sl.open_store(new))
            back = predecessor_of(manifest)
            assert back is not None
            assert back.url == sl.open_store(old).url

        run(main())

    def test_the_refusal_tells_where_to_go(self, store_url: str) -> None:
        async def main() -> None:
            old, new = f"{store_url}/old", f"{store_url}/new"
            await filled(old)
            await Sealer(old).migrate(new)
            async with sl.LogWriter.open(old) as log:
                with pytest.raises(Sealed) as refusal:
                    await log.append(b"late")
            assert sl.open_store(new).url in refusal.value.hint

        run(main())

    def test_the_refusal_of_a_log_without_one_tells_how_to_get_it(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            await filled(store)
            await Sealer(store).seal()
            async with sl.LogWriter.open(store) as log:
                with pytest.raises(Sealed) as refusal:
                    await log.append(b"late")
            assert "takes no more records" in refusal.value.hint
            assert "`stratalog migrate`" in refusal.value.hint

        run(main())

    def test_it_is_named_once(self, store_url: str) -> None:
        async def main() -> None:
            old = f"{store_url}/old"
            await filled(old)
            await Sealer(old).seal()
            await Sealer(old).migrate(f"{store_url}/a")
            await Sealer(old).migrate(f"{store_url}/a")
            with pytest.raises(Conflict, match="another successor"):
                await Sealer(old).migrate(f"{store_url}/b")
            with pytest.raises(NotFound):
                await load_manifest(sl.open_store(f"{store_url}/b"))

        run(main())

    def test_of_two_at_once_one_is_named(self, store_url: str) -> None:
        async def main() -> None:
            old = f"{store_url}/old"
            await filled(old)
            places = [f"{store_url}/{name}" for name in "abc"]
            ended = await asyncio.gather(
                *(Sealer(old).migrate(place) for place in places), return_exceptions=True
            )
            assert sum(isinstance(each, sl.LogPosition) for each in ended) == 1
            assert sum(isinstance(each, Conflict) for each in ended) == 2

        run(main())

    def test_it_inherits_what_settles_lost_answers(self) -> None:
        """A writer whose put was overtaken by the migration must find its name in either log."""

        async def main() -> None:
            name = uuid.uuid4().hex
            old, new = f"memory://{name}/old", f"memory://{name}/new"
            store = await filled(old)
            before, _ = await load_manifest(store)
            await Sealer(old).migrate(new)
            after, _ = await load_manifest(sl.open_store(new))
            assert after.linked == before.linked
            assert after.next_seq_no == before.next_seq_no

        run(main())

    def test_a_place_that_is_taken_is_refused_before_the_log_is_sealed(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            old, taken = f"{store_url}/old", f"{store_url}/taken"
            await filled(old)
            await filled(taken)
            with pytest.raises(Exists):
                await Sealer(old).migrate(taken)
            assert await Sealer(old).state() is None
            with pytest.raises(Invalid, match="its own successor"):
                await Sealer(old).migrate(old)

        run(main())

    def test_a_log_that_came_to_the_place_meanwhile_is_not_taken_for_the_successor(self) -> None:
        async def main() -> None:
            name = uuid.uuid4().hex
            old, new = f"memory://{name}/old", f"memory://{name}/new"
            store = await filled(old)
            gate = GateStore(sl.open_store(store), MANIFEST_PATH)
            moving = asyncio.ensure_future(Sealer(gate).migrate(new))
            await gate.arrived.wait()
            await filled(new)
            gate.open()
            with pytest.raises(Exists):
                await moving
            async with sl.LogReader.open(old) as reader:
                with pytest.raises(sl.errors.Corrupt, match="not the successor"):
                    async for _ in reader.follow(4):
                        pass

        run(main())


class TestOneSuccessorBySeveralNames:
    @pytest.mark.parametrize("again", ["{}", "{}/", "{}//", "MEMORY{}"])
    def test_a_migration_is_resumed_under_another_spelling(self, again: str) -> None:
        async def main() -> None:
            base = f"memory://{uuid.uuid4().hex}"
            old, new = f"{base}/old", f"{base}/new"
            await filled(old)
            await named_only(old, f"{new}/")
            spelled = again.format(new.removeprefix("memory") if "MEMORY" in again else new)
            for _ in range(2):
                assert (await Sealer(old).migrate(spelled)).offset == 4
            async with sl.LogWriter.open(new) as log:
                await log.append(b"4")
            assert await followed(old) == [b"1", b"2", b"3", b"4"]

        run(main())

    @pytest.mark.s3
    def test_followers_reach_a_successor_whose_url_has_options(
        self, s3_server: S3Server, s3_url: str
    ) -> None:
        async def main() -> None:
            options = f"endpoint={s3_server.endpoint}&region=us-east-1"
            old, new = f"{s3_url}/old", f"{s3_url}/new"
            await filled(old)
            await named_only(old, f"{new}?{options}")
            for again in (new, f"{new}/", f"{new}/?{options}", f"s3a{new[2:]}?{options}"):
                assert (await Sealer(old).migrate(again)).offset == 4
            async with sl.LogWriter.open(new) as log:
                await log.append(b"4")
            for spelled in (old, f"{old}?{options}", f"{old}?region=us-east-1"):
                assert await followed(spelled) == [b"1", b"2", b"3", b"4"]

        run(main())

    def test_the_same_url_at_another_endpoint_is_another_place(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Buckets of one name: the URLs differ in nothing but their options."""

        class Bucket(MemoryStore):
            @property
            def url(self) -> str:
                return "s3://bucket"

        buckets: dict[str, Bucket] = {}

        def client(
            _pid: int,
            _scheme: str,
            _bucket: str,
            options: tuple[tuple[str, str], ...],
            _env: object,
        ) -> Bucket:
            return buckets.setdefault(dict(options)["endpoint"], Bucket())

        monkeypatch.setattr(locate, "_shared_client", client)
        here, there = "endpoint=http://here", "endpoint=http://there"

        async def main() -> None:
            old = f"s3://bucket/old?{here}"
            await filled(old)
            await named_only(old, f"s3://bucket/new?{here}")
            with pytest.raises(Conflict, match="another successor"):
                await Sealer(old).migrate(f"s3://bucket/new?{there}")
            with pytest.raises(NotFound):
                await load_manifest(sl.open_store(f"s3://bucket/new?{there}"))
            assert (await Sealer(old).migrate(f"s3://bucket/new?{here}")).offset == 4

        run(main())


class TestCrashes:
    """Seal and migrate, killed before and after every operation, then run again."""

    def crash(self, base: str, point: CrashPoint) -> None:
        old, new = f"{base}/old", f"{base}/new"
        run(filled(old))

        async def script(store: sl.Store, _: History) -> None:
            await Sealer(store).migrate(new)

        run_until_crash(sl.open_store(old), script, point, History(), Puts())

        async def finish() -> None:
            assert (await Sealer(old).migrate(new)).offset == 4
            async with sl.LogWriter.open(new) as log:
                assert (await log.append(b"4")).offset == 4
            assert await bodies_of(old) == [b"1", b"2", b"3"]
            assert await bodies_of(new) == [b"4"]

        run(finish())

    def points(self) -> list[CrashPoint]:
        name = f"memory://{uuid.uuid4().hex}"
        run(filled(f"{name}/old"))

        async def script(store: sl.Store, _: History) -> None:
            await Sealer(store).migrate(f"{name}/new")

        return sides_of(
            run_until_crash(sl.open_store(f"{name}/old"), script, None, History(), Puts())
        )

    def test_at_every_operation(self) -> None:
        points = self.points()
        assert len(points) >= 6
        for point in points:
            self.crash(f"memory://{uuid.uuid4().hex}", point)

    def test_at_every_operation_of_the_successor(self) -> None:
        for number in range(1, 8):
            for when in ("before", "after"):
                self.crash_there(CrashPoint(number, when))

    def crash_there(self, point: CrashPoint) -> None:
        name = f"memory://{uuid.uuid4().hex}"
        old, new = f"{name}/old", f"{name}/new"
        run(filled(old))

        async def script(store: sl.Store, _: History) -> None:
            await Sealer(old).migrate(store)

        run_until_crash(sl.open_store(new), script, point, History(), Puts())

        async def finish() -> None:
            assert (await Sealer(old).migrate(new)).offset == 4
            assert await bodies_of(old) == [b"1", b"2", b"3"]
            assert await bodies_of(new) == []

        run(finish())

    def test_at_sampled_operations_on_every_store(self, store_url: str) -> None:
        for index, point in enumerate(Random(store_url[:3]).sample(self.points(), 3)):
            when: When = point.when
            self.crash(f"{store_url}/{index}", CrashPoint(point.number, when))


class TestBootstrap:
    def test_a_log_begins_at_a_given_offset(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url, first_offset=100)
            async with sl.LogReader.open(store_url) as reader:
                assert (reader.first_offset, reader.tail) == (100, 100)
            async with sl.LogWriter.open(store_url) as log:
                assert (await log.append(b"x")).offset == 100
                with pytest.raises(Conflict):
                    await log.append(b"y", expected_offset=1)
            rows = await check_whole_log(store_url)
            assert [row[0] for row in rows] == [100]

        run(main())

    @pytest.mark.parametrize("offset", [0, -1, "1", 1.0])
    def test_at_no_offset(self, offset: int) -> None:
        with pytest.raises(Invalid):
            run(sl.create_log(MemoryStore(), first_offset=offset))
