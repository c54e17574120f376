"""Erasure: records are gone for good, and a certificate says so that others can check."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stratalog as sl
from objectlog.crashing import CrashPoint, crash_at_each, run_until_crash, sides_of
from objectlog.erasures import AT_ONCE, check_erased, erased, written
from objectlog.trees import LEAF, MadeLog, Shape, drawn_shapes, leaves
from objectlog.whole_log import check_whole_log, orphans, replace_bytes, rows_of, run, sweep
from objectlog.wrapped_stores import PassingStore, Puts
from s3_server import S3Server
from signed_requests import versioned_bucket
from stratalog import IndexSet, Presence
from stratalog.errors import Conflict, Corrupt, Fenced, Invalid, NotFound, StratalogError
from stratalog.objectlog.collection.sweep_log import sweep_noting
from stratalog.objectlog.compaction import repack as replanting
from stratalog.objectlog.erasure import delete_copies as copying
from stratalog.objectlog.erasure.certificate import decode_certificate
from stratalog.objectlog.holds.upload_guard import UploadGuard
from stratalog.objectlog.stored.fragment import decode_fragment
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, load_manifest
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import MemoryStore, Store, StoreLike
from stratalog.store.protocol import Head
from stratalog.testing import History, Row

DEEP: Shape = (((LEAF, LEAF, LEAF), (LEAF, LEAF)), (LEAF, LEAF), LEAF, LEAF)


class TestErasing:
    def test_the_records_are_gone_and_all_others_stay(self, store_url: str) -> None:
        async def main() -> None:
            store = await written(store_url)
            before = await rows_of(store)
            made = await erased(store, 3, 4, 25, note="case 12", query="user = 'u-17'")
            await check_erased(store, before, IndexSet.of([3, 4, 25]))
            assert made.complete
            assert (made.state, made.records, made.deleted, made.kept) == ("done", 3, 2, ())
            assert made.note == "case 12"
            assert "u-17" not in made.to_json().decode()
            assert made.is_about("user = 'u-17'")
            assert not made.is_about("user = 'u-18'")
            assert await sl.load_certificate(store, made.id) == made
            assert await sl.list_certificates(store) == [made]
            assert (await sl.verify_certificate(made, store)).holds

        run(main())

    def test_sums_are_those_of_the_records(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            rows = await rows_of(store)
            manifest, _ = await load_manifest(store)
            made = await erased(store, 3, 25)
            items = [
                offset.to_bytes(8, "big") + at_us.to_bytes(8, "big") + body
                for offset, at_us, body in rows
            ]
            assert made.setsum_before == manifest.setsum == Setsum.of(*items)
            assert made.setsum_removed == Setsum.of(items[2], items[24]) == made.collected
            assert made.balances

        run(main())

    def test_a_reader_is_told_that_it_was_compacted(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            await erased(store, 3)
            async with sl.LogReader.open(store) as reader:
                assert await reader.presence(3) is Presence.COMPACTED
                assert await reader.presence(2) is Presence.PRESENT

        run(main())

    def test_in_the_newest_fragment_an_offset_is_left_out(self, store_url: str) -> None:
        async def main() -> None:
            store = await written(store_url)
            before = await rows_of(store)
            made = await erased(store, 50)
            await check_erased(store, before, IndexSet.of([50]))
            assert made.complete
            async with sl.LogWriter.open(store) as log:
                assert (await log.append(b"on")).offset == 52
            async with sl.LogReader.open(store) as reader:
                assert await reader.presence(51) is Presence.COMPACTED

        run(main())

    def test_a_log_of_one_record(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 1, 1)
            made = await erased(store, 1)
            assert made.complete
            assert made.setsum_after == EMPTY
            assert await rows_of(store) == []
            assert (await sl.verify_certificate(made, store)).holds

        run(main())

    def test_a_writer_that_is_open_is_fenced_only_by_the_blank(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            async with sl.LogWriter.open(store) as log:
                await erased(store, 3)
                assert (await log.append(b"goes on")).offset == 51
                await erased(store, 51)
                with pytest.raises(Fenced):
                    await log.append(b"does not")

        run(main())

    def test_of_a_sealed_log_the_newest_fragment_is_rewritten(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            before = await rows_of(store)
            await sl.Sealer(store).seal()
            made = await erased(store, 50)
            assert made.complete
            await check_erased(store, before, IndexSet.of([50]))
            manifest, _ = await load_manifest(store)
            assert manifest.tail.offset == 51

        run(main())

    def test_what_nobody_has_needs_no_certificate(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            await erased(store, 3)
            for doomed in (IndexSet(), IndexSet.of([3]), IndexSet.of([1000])):
                assert await sl.erase(store, doomed) is None
            assert len(await sl.list_certificates(store)) == 1

        run(main())

    def test_what_will_be_written_at_an_offset_is_not_meant(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            await sl.PinStore(store).create("held")
            made = await erased(store, 3, 55, 1000, despite_holders=True)
            assert list(made.erased) == [3]
            async with sl.LogWriter.open(store) as log:
                await log.append_many([b"later"] * 10)
            await sl.finish_erasures(store, options=AT_ONCE)
            assert len(await rows_of(store)) == 59

        run(main())

    def test_nothing_else_is_touched(self) -> None:
        """Also not what a compaction would like to merge."""

        async def main() -> None:
            store = await written(MemoryStore())
            await erased(store, 50)  # leaves a blank
            async with sl.LogWriter.open(store) as log:
                await log.append_many([b"on"] * 10)
            before, _ = await load_manifest(store)
            made = await erased(store, 15)
            after, _ = await load_manifest(store)
            changed = [each for each in before.fragments if each not in after.fragments]
            assert [each.start.offset for each in changed] == [11]
            assert made.objects == (changed[0].path,)

        run(main())

    def test_what_was_appended_meanwhile_stays(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            register = UploadGuard.register

            async def beside_a_writer(*args: Any, **options: Any) -> UploadGuard:
                stage = await register(*args, **options)
                async with sl.LogWriter.open(store) as log:
                    await log.append(b"meanwhile")
                return stage

            with patch.object(UploadGuard, "register", beside_a_writer):
                made = await erased(store, 3)
            rows = await rows_of(store)
            assert rows[-1][2] == b"meanwhile"
            assert len(rows) == 50
            assert (await sl.verify_certificate(made, store)).holds

        run(main())

    def test_uploads_that_were_never_linked_go_as_well(self) -> None:
        """A compaction that was killed has stored copies of what is to go."""

        async def main() -> None:
            store = await written(MemoryStore())
            before = await rows_of(store)
            once = sl.CompactOptions(interval_s=0.0, attempts_max=1)
            killed = patch.object(sl.Collector, "run", side_effect=Conflict("killed"))
            with killed, pytest.raises(Conflict):
                await sl.compact(store, IndexSet.of([3]), up_to=41, options=once)
            assert await orphans(store)
            assert (await erased(store, 3)).complete
            await check_erased(store, before, IndexSet.of([3]))

        run(main())

    @settings(max_examples=40, deadline=None)
    @given(drawn_shapes(), st.integers(0, 2**32))
    def test_any_records_of_any_tree(self, shape: Shape, seed: int) -> None:
        random = Random(seed)

        async def main() -> None:
            store, tail = MemoryStore(), leaves(shape) * 3 + 1
            await MadeLog(shape, records=3, encoded=True).store(store)
            for _ in range(2):
                before = await rows_of(store)
                doomed = IndexSet.of([o for o in range(1, tail) if random.random() < 0.2])
                made = await sl.erase(store, doomed, options=AT_ONCE)
                await check_erased(store, before, doomed)
                assert made is None or (await sl.verify_certificate(made, store)).holds
            collector = sl.Collector(store, options=sl.CollectorOptions(interval_s=0.0))
            await sl.CursorStore(store).create("c", random.randint(1, tail))
            await collector.collect()
            await check_whole_log(store, compacted=True)

        with patch.object(replanting, "NODE_ENTRIES_MAX", 2 + seed % 3):
            run(main())

    def test_what_is_no_set_is_refused(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 1)
            with pytest.raises(Invalid, match="IndexSet"):
                await sl.erase(store, [3])  # type: ignore[arg-type]
            with pytest.raises(Invalid, match="note"):
                await sl.erase(store, IndexSet.of([3]), note="x" * 10_000)
            with pytest.raises(Invalid, match="id of a certificate"):
                await sl.load_certificate(store, "../manifest")
            with pytest.raises(NotFound):
                await sl.erase(MemoryStore(), IndexSet.of([3]))

        run(main())


class TestHolders:
    def test_a_pin_stops_it_and_nothing_has_changed(self, store_url: str) -> None:
        async def main() -> None:
            store = await written(store_url)
            await sl.PinStore(store).create("model_7", 1, 4, note="training")
            manifest, _ = await load_manifest(store)
            with pytest.raises(Conflict, match=r"the pin model_7 \(training\)"):
                await erased(store, 5)  # not in its stretch, but in a fragment that it holds
            assert (await load_manifest(store))[0] == manifest
            assert await sl.list_certificates(store) == []
            assert (await erased(store, 15)).complete

        run(main())

    def test_despite_a_pin_and_again_when_it_is_released(self, store_url: str) -> None:
        async def main() -> None:
            store = await written(store_url)
            before = await rows_of(store)
            pin = await sl.PinStore(store).create("model_7")
            made = await erased(store, 3, despite_holders=True)
            assert not made.complete
            assert [(each.kind, each.name, each.records) for each in made.holders] == [
                ("pin", "model_7", 1)
            ]
            assert made.kept == made.objects != ()
            assert "still held by the pin model_7" in made.reasons
            report = await sl.verify_certificate(made, store)
            assert report.holds
            assert [each.outcome for each in report.checks if each.name == "deleted"] == ["unknown"]
            async with sl.LogReader.open(store, pin="model_7") as reader:
                assert [each.offset async for each in reader.records(1)] == [*range(1, 51)]
            await pin.release()
            (again,) = await sl.finish_erasures(store, options=AT_ONCE)
            assert again.complete
            assert (again.kept, again.reasons, again.holders) == ((), (), ())
            assert again.setsum_removed == made.setsum_removed
            await check_erased(store, before, IndexSet.of([3]))
            assert await sl.finish_erasures(store) == []

        run(main())

    def test_a_pin_that_is_past_its_expiry_holds_nothing(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            await sl.PinStore(store).create("old", expires_us=1)
            assert (await erased(store, 3)).complete

        run(main())

    def test_a_pin_may_hold_what_the_log_has_not_any_more(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            await sl.PinStore(store).create("old")
            await sl.compact(store, IndexSet(), up_to=41, options=AT_ONCE)
            found = await sl.preview_erasure(store, IndexSet.of([3]))
            assert (len(found.offsets), len(found.holders)) == (0, 1)
            with pytest.raises(Conflict, match="the pin old"):
                await erased(store, 3)
            made = await erased(store, 3, despite_holders=True)
            assert (made.records, made.complete) == (0, False)
            assert made.balances

        run(main())

    def test_a_pin_whose_objects_are_lost_holds_nothing_of_them(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            await MadeLog(DEEP, records=2, encoded=True).store(store)
            await sl.PinStore(store).create("old")
            await sl.compact(store, IndexSet.of([12]), up_to=17, options=AT_ONCE)
            pin = await sl.PinStore(store).load("old")
            await store.delete_many([pin.entries[0].path])
            assert (await sl.preview_erasure(store, IndexSet.of([3]))).holders == ()
            assert (await sl.preview_erasure(store, IndexSet.of([13]))).holders != ()

        run(main())

    def test_a_pin_that_ends_while_it_is_erased(self) -> None:
        """Nobody holds the record any more, but what it held is still stored."""

        async def main() -> None:
            store = await written(MemoryStore())
            before = await rows_of(store)
            pin = await sl.PinStore(store).create("short")
            await sl.compact(store, IndexSet(), up_to=41, options=AT_ONCE)
            clear = sl.Collector.clear_pins
            calls = 0

            async def too_early(self: sl.Collector) -> Any:
                nonlocal calls
                calls += 1
                done = await clear(self)
                if calls == 3:  # the last look
                    await pin.release()
                return done

            with patch.object(sl.Collector, "clear_pins", too_early):
                made = await erased(store, 3, despite_holders=True)
            assert not made.complete
            (again,) = await sl.finish_erasures(store, options=AT_ONCE)
            assert again.complete
            left = [row for row in before if row[0] > 40]
            await check_erased(store, left, IndexSet.of([3]))

        run(main())

    def test_a_compaction_that_ends_while_the_log_is_swept(self) -> None:
        """It has read the record before, and stored a copy after the sweep had passed by."""

        async def main() -> None:
            store = await written(MemoryStore())
            slow = await UploadGuard.register(store, owner="slow", note="a compaction")

            async def sweep_and_end(*args: Any, **options: Any) -> Any:
                done = await sweep_noting(*args, **options)
                await slow.release()
                return done

            with patch.object(copying, "sweep_noting", sweep_and_end):
                made = await erased(store, 3)
            assert not made.complete
            (again,) = await sl.finish_erasures(store, options=AT_ONCE)
            assert again.complete

        run(main())

    def test_a_fork_is_complete_once_its_source_has_erased(self) -> None:
        async def main() -> None:
            source = await written(f"memory://{uuid.uuid4().hex}/source")
            url = source.url.replace("/source", "/fork")
            await sl.fork(source.url, url)
            made = await erased(url, 3, despite_holders=True)
            assert not made.complete
            await erased(source, 3, despite_holders=True)
            for pin in await sl.PinStore(source).list():
                await pin.release()  # as if the fork had let go
            await sl.finish_erasures(source, options=AT_ONCE)
            (again,) = await sl.finish_erasures(url, options=AT_ONCE)
            assert again.complete, again.reasons

        run(main())

    def test_a_fork_and_its_source_are_named(self) -> None:
        async def main() -> None:
            source = await written(f"memory://{uuid.uuid4().hex}/source")
            url = source.url.replace("/source", "/fork")
            await sl.fork(source.url, url)
            with pytest.raises(Conflict, match="a fork, by the pin fork_"):
                await erased(source, 3)
            with pytest.raises(Conflict, match="forked from"):
                await erased(url, 3)
            made = await erased(url, 3, despite_holders=True)
            assert not made.complete
            assert [url for url, _ in made.foreign] == [source.url]
            assert len(await rows_of(source)) == 50
            assert 3 not in [row[0] for row in await rows_of(sl.open_store(url))]

        run(main())

    def test_a_compaction_that_is_under_way_may_have_read_them(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            stage = await UploadGuard.register(store, owner="slow", note="a compaction")
            made = await erased(store, 3)
            assert [each.kind for each in made.holders] == ["stage"]
            await stage.release()
            (again,) = await sl.finish_erasures(store, options=AT_ONCE)
            assert again.complete

        run(main())


class Versioned(MemoryStore):
    """A bucket that keeps versions."""

    async def head(self, path: str) -> Head:
        found = await super().head(path)
        return Head(found.path, found.size, found.etag, "v1")


class TestVersions:
    def test_a_bucket_that_keeps_versions_is_told(self) -> None:
        async def main() -> None:
            made = await erased(await written(Versioned()), 3)
            assert (made.versions, made.complete) == ("kept", False)
            assert "older versions" in made.reasons[0]

        run(main())

    def test_on_a_real_server(self, s3_server: S3Server) -> None:
        name = f"versioned-{uuid.uuid4().hex[:8]}"
        store = sl.open_store(f"{versioned_bucket(s3_server, name)}/log", options=s3_server.options)

        async def main() -> None:
            made = await erased(await written(store), 3)
            assert (made.versions, made.complete) == ("kept", False)
            assert (await sl.verify_certificate(made, store)).holds

        run(main())

    def test_one_that_does_not_tell_is_told(self) -> None:
        class Google(Versioned):
            url = "gs://bucket/log"

        async def main() -> None:
            made = await erased(await written(Google()), 3)
            assert (made.versions, made.complete) == ("unknown", False)

        run(main())


class TestCertificates:
    def test_one_that_was_changed_is_known(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            made = await erased(store, 3)
            wrong = msgspec.structs.replace(made, records=1_000)
            assert not (await sl.verify_certificate(wrong)).holds
            wrong = msgspec.structs.replace(made, setsum_removed=EMPTY)
            checks = (await sl.verify_certificate(wrong.sealed_as("w"))).checks
            assert [each.name for each in checks if each.outcome == "broken"] == ["balance"]
            assert not (await sl.verify_certificate(made, store, query="other")).holds

        run(main())

    def test_a_record_that_is_there_breaks_it(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            made = await erased(store, 3)
            other = await written(MemoryStore())
            checks = (await sl.verify_certificate(made, other)).checks
            broken = [each.name for each in checks if each.outcome == "broken"]
            assert broken == ["absent"]
            short = await written(MemoryStore(), 1)
            checks = (await sl.verify_certificate(made, short)).checks
            assert "sums" in [each.name for each in checks if each.outcome == "broken"]

        run(main())

    def test_an_old_object_that_comes_back_breaks_it(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            manifest, _ = await load_manifest(store)
            data = (await store.get(manifest.fragments[0].path)).data
            made = await erased(store, 3)
            await store.put_if_absent(made.objects[0], data)
            checks = (await sl.verify_certificate(made, store)).checks
            assert [each.name for each in checks if each.outcome == "broken"] == ["deleted"]

        run(main())

    def test_it_holds_after_the_log_has_gone_on(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            made = await erased(store, 3)
            async with sl.LogWriter.open(store) as log:
                for _ in range(3):
                    await log.append_many([b"more"] * 4)
            report = await sl.verify_certificate(made, store)
            assert all(each.outcome == "holds" for each in report.checks), report.checks
            await sl.CursorStore(store).create("c", 31)
            await sl.collect(store, options=sl.CollectorOptions(interval_s=0.0))
            report = await sl.verify_certificate(made, store)
            assert report.holds
            assert [each.name for each in report.checks if each.outcome == "unknown"] == ["sums"]

        run(main())

    @given(st.binary(max_size=200))
    def test_any_bytes_are_a_certificate_or_corrupt(self, data: bytes) -> None:
        try:
            decode_certificate(data)
        except (Corrupt, Invalid):
            return

    def test_unknown_fields_are_kept_and_hashed(self) -> None:
        async def main() -> None:
            made = await erased(await written(MemoryStore()), 3)
            more = decode_certificate(made.to_json()[:-1] + b',"colour":"red"}')
            assert more.unknown is not None
            assert more.digest != made.digest
            assert decode_certificate(more.sealed_as("w").to_json()) == more.sealed_as("w")

        run(main())

    def test_one_that_is_damaged_stands_in_nobodys_way(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            made = await erased(store, 3)
            await store.put_if_absent("certificate/0123456789abcdef.json", b"{}")
            await store.put_if_absent("certificate/fedcba9876543210.json", made.to_json())
            await store.put_if_absent("certificate/note.txt", b"?")
            assert (await erased(store, 4)).complete
            with pytest.raises(Corrupt):
                await sl.list_certificates(store)
            damages: list[StratalogError] = []
            found = await sl.list_certificates(store, on_damage=damages.append)
            assert (len(found), len(damages)) == (2, 2)

        run(main())

    def test_an_erasure_that_cannot_be_finished_stands_in_nobodys_way(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            manifest, _ = await load_manifest(store)
            path = manifest.fragments[0].path
            blob = await store.get(path)
            await store.put_if_match(path, blob.data[:-40] + b"?" * 40, blob.etag)
            with pytest.raises(Corrupt):
                await erased(store, 3)
            assert (await erased(store, 15)).complete
            with pytest.raises(Corrupt):
                await sl.finish_erasures(store, options=AT_ONCE)
            states = [each.state for each in await sl.list_certificates(store)]
            assert states == ["begun", "done"]

        run(main())

    def test_a_rewritten_end_cannot_be_compared(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            made = await erased(store, 3)
            async with sl.LogWriter.open(store) as log:
                await log.append(b"x")
                await log.append(b"y")
            await erased(store, 51)
            checks = {
                each.name: each.outcome
                for each in (await sl.verify_certificate(made, store)).checks
            }
            assert checks["sums"] == "unknown"
            assert "broken" not in checks.values()

        run(main())

    def test_destroy_takes_them_along_and_the_sweep_leaves_them(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            await erased(store, 3)
            await sweep(store)
            assert len(await sl.list_certificates(store)) == 1
            await sl.destroy(store)
            assert [row async for row in store.list()] == []

        run(main())


class TestCrashes:
    """Before and after every operation; then the next run completes, and certifies."""

    DOOMED = IndexSet.of([2, 5, 6, 18])

    async def erase(self, store: Store, _: History) -> None:
        await sl.erase(store, self.DOOMED, options=AT_ONCE)

    async def finish(self, store: Store, before: list[Row]) -> None:
        await sl.erase(store, self.DOOMED, options=AT_ONCE)
        stages = [row.path[6:-5] async for row in store.list("stage/")]
        await sl.sweep(store, revoke=stages)
        await sl.finish_erasures(store, options=AT_ONCE)
        await check_erased(store, before, self.DOOMED)
        (made,) = await sl.list_certificates(store)
        assert made.complete, made.reasons
        assert (made.records, len(made.objects)) == (4, 3)
        items = [
            offset.to_bytes(8, "big") + at_us.to_bytes(8, "big") + body
            for offset, at_us, body in before
            if offset in self.DOOMED
        ]
        assert made.setsum_removed == Setsum.of(*items)
        report = await sl.verify_certificate(made, store)
        assert report.holds, report.checks

    def crash(self, url: StoreLike, point: CrashPoint) -> None:
        puts = Puts()
        store = sl.open_store(url)
        run(MadeLog(DEEP, records=2, encoded=True).store(store))
        before = run(rows_of(store))
        run_until_crash(store, self.erase, point, History(), puts)
        run(self.finish(store, before))
        puts.check_names_were_used_once()

    def points(self) -> list[CrashPoint]:
        store = MemoryStore()
        run(MadeLog(DEEP, records=2, encoded=True).store(store))
        return sides_of(run_until_crash(store, self.erase, None, History(), Puts()))

    def test_at_every_operation(self) -> None:
        points = self.points()
        assert len(points) > 60
        crash_at_each(points, lambda point: self.crash(MemoryStore(uuid.uuid4().hex), point))

    def test_at_sampled_operations_on_every_store(self, store_url: str) -> None:
        for index, point in enumerate(Random(store_url[:3]).sample(self.points(), 6)):
            self.crash(f"{store_url}/{index}", point)


class LosesTheBlank(PassingStore):
    """What lies between the upload of a blank and its manifest: something else, once."""

    def __init__(self, inner: Store, meanwhile: Callable[[Store], Awaitable[object]]) -> None:
        super().__init__(inner)
        self._meanwhile: Callable[[Store], Awaitable[object]] | None = meanwhile
        self._has_blank = False

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self._has_blank |= path.startswith("log/")
        return await super().put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        if self._has_blank and path == MANIFEST_PATH and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            await meanwhile(self.inner)
        return await super().put_if_match(path, data, etag)


class TestABlankThatWasNotLinked:
    """It lies beyond the tail, and is no evidence of a newer manifest."""

    @staticmethod
    async def killed(store: Store) -> None:
        raise RuntimeError("killed")

    def test_a_run_that_is_killed_before_it_links_the_blank(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 5, 1)
            before = await rows_of(store)
            with pytest.raises(RuntimeError):
                await erased(LosesTheBlank(store, self.killed), 5)
            assert (await sl.sweep(store)).ahead.objects == 1
            (made,) = await sl.finish_erasures(store, options=AT_ONCE)
            assert made.complete, made.reasons
            await check_erased(store, before, IndexSet.of([5]))
            assert (await sl.sweep(store)).ahead.objects == 0

        run(main())

    def test_the_log_is_sealed_before_the_blank_is_linked(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 5, 1)
            made = await erased(LosesTheBlank(store, lambda inner: sl.Sealer(inner).seal()), 5)
            assert made.complete, made.reasons
            assert (await sl.sweep(store)).ahead.objects == 1
            assert (await erased(store, 3)).complete
            assert await sl.finish_erasures(store, options=AT_ONCE) == []

        run(main())

    def test_an_older_manifest_that_is_there_on_purpose(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 5, 1)
            older = (await store.get(MANIFEST_PATH)).data
            async with sl.LogWriter.open(store) as log:
                await log.append(b"a")
                await log.append(b"b")
            await replace_bytes(store, MANIFEST_PATH, older)
            with pytest.raises(Corrupt, match="older than what lies beside it"):
                await erased(store, 3)
            with pytest.raises(Corrupt, match="older than what lies beside it"):
                await sl.finish_erasures(store, options=AT_ONCE)
            (made,) = await sl.finish_erasures(store, options=AT_ONCE, older_manifest=True)
            assert made.complete, made.reasons
            assert (await erased(store, 5, older_manifest=True)).complete

        run(main())


def test_survivors_are_bit_identical() -> None:
    async def main() -> None:
        store = await written(MemoryStore(), 2)
        before = (await load_manifest(store))[0].fragments[0]
        was = decode_fragment((await store.get(before.path)).data, before)
        await erased(store, 3)
        after = (await load_manifest(store))[0].fragments[0]
        now = decode_fragment((await store.get(after.path)).data, after)
        assert now.to_pylist() == [row for row in was.to_pylist() if row["offset"] != 3]

    run(main())
