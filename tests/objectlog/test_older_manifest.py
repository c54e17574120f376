"""An older manifest put back: nothing that only the newer one linked is deleted unasked."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stratalog as sl
from objectlog.leftovers import everything, grown
from objectlog.whole_log import SMALL_TREE, bodies_of, check_whole_log, ids, replace_bytes, run
from stratalog.errors import Corrupt
from stratalog.objectlog.bulk import BulkUpload, link_uploaded
from stratalog.objectlog.collection.older_manifest import Standing, standing
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.holds.upload_guard import UploadGuard
from stratalog.objectlog.stored import (
    LINKED_MAX,
    MANIFEST_PATH,
    LinkedMark,
    Manifest,
    load_manifest,
)
from stratalog.objectlog.stored.linked_mark import MARK_KEY, parse_mark, read_mark
from stratalog.objectlog.stored.names import UploadNames
from stratalog.store import MemoryStore, Store

AT_ONCE = sl.CollectorOptions(interval_s=0.0)


async def manifest_bytes(store: Store) -> bytes:
    return (await store.get(MANIFEST_PATH)).data


async def put_back(store: Store, older: bytes) -> None:
    await replace_bytes(store, MANIFEST_PATH, older)


async def append(store: Store, *bodies: bytes) -> None:
    async with sl.LogWriter.open(store) as log:
        for body in bodies:
            await log.append(body)


async def check_refused(store: Store, evidence: str) -> None:
    """The sweep and its dry run refuse, and nothing has changed."""
    before = await everything(store)
    for dry_run in (True, False):
        with pytest.raises(Corrupt, match=evidence) as caught:
            await sweep(store, dry_run=dry_run)
        assert "--older-manifest" in caught.value.hint
    assert await everything(store) == before


class TestEvidence:
    def test_two_records_more_are_noticed_and_nothing_is_deleted(self, store_url: str) -> None:
        async def main() -> None:
            store = await grown(store_url)
            older = await manifest_bytes(store)
            await append(store, b"a", b"b", b"c")
            newer = await manifest_bytes(store)
            await put_back(store, older)
            await check_refused(store, "begun when there was more")
            await put_back(store, newer)
            assert (await bodies_of(store))[-3:] == [b"a", b"b", b"c"]
            await sweep(store)
            await check_whole_log(store)

        run(main())

    def test_the_very_last_record_is_spared(self, store_url: str) -> None:
        async def main() -> None:
            store = await grown(store_url)
            older = await manifest_bytes(store)
            await append(store, b"last")
            newer = await manifest_bytes(store)
            await put_back(store, older)
            spared = await sweep(store)
            assert spared.ahead.objects >= 1
            await put_back(store, newer)
            assert (await bodies_of(store))[-1] == b"last"
            await check_whole_log(store)

        run(main())

    def test_on_purpose_they_go(self) -> None:
        async def main() -> None:
            store = await grown(MemoryStore())
            older = await manifest_bytes(store)
            before = await bodies_of(store)
            await append(store, b"a", b"b")
            await put_back(store, older)
            report = await sweep(store, older_manifest=True)
            assert report.deleted.objects >= 2
            assert await bodies_of(store) == before
            assert (await sweep(store)).deleted.objects == 0
            await append(store, b"another")
            await check_whole_log(store)

        run(main())

    def test_records_are_noticed_after_others_took_their_numbers(self) -> None:
        """The log has grown past them since: who had linked what tells."""

        async def main() -> None:
            store = await grown(MemoryStore())
            older = await manifest_bytes(store)
            await append(store, b"a", b"b", b"c")
            await put_back(store, older)
            await append(store, *(b"%d" % number for number in range(8)))
            await check_refused(store, "begun when there was more")

        run(main())

    def test_a_cursor_beyond_the_tail(self) -> None:
        async def main() -> None:
            store = await grown(MemoryStore())
            older = await manifest_bytes(store)
            await append(store, b"a", b"b")
            await sl.CursorStore(store).create("billing", 11)
            await put_back(store, older)
            await check_refused(store, "the cursor 'billing' is at 11")
            with pytest.raises(Corrupt, match="the cursor 'billing'"):
                await sl.collect(store, options=AT_ONCE)
            on_purpose = sl.CollectorOptions(interval_s=0.0, older_manifest=True)
            await sl.collect(store, options=on_purpose)

        run(main())

    def test_a_pin_beyond_the_tail_and_what_only_it_held(self) -> None:
        async def main() -> None:
            store = await grown(MemoryStore())
            await sl.CursorStore(store).create("keeper", 1)
            older = await manifest_bytes(store)
            await append(store, b"a", b"b")
            newer = await manifest_bytes(store)
            pin = await sl.PinStore(store).create("held", 10)
            await put_back(store, older)
            await check_refused(store, "the pin 'held'")
            await pin.release()
            with pytest.raises(Corrupt, match="the pin 'held'"):
                await sl.collect(store, options=AT_ONCE)
            await put_back(store, newer)
            assert (await bodies_of(store))[-2:] == [b"a", b"b"]

        run(main())

    def test_a_compaction_that_is_taken_back_leaves_a_gap(self) -> None:
        """All numbers are linked, but what took the place of the fragments is not."""

        async def main() -> None:
            store = await grown(MemoryStore())
            older = await manifest_bytes(store)
            live = sl.IndexSet(range(2, 4), range(5, 10))
            options = sl.CompactOptions(live_share_min=1.0, interval_s=0.0)
            assert (await sl.compact(store, live, up_to=10, options=options)).records == 2
            newer = await manifest_bytes(store)
            await put_back(store, older)
            with pytest.raises(Corrupt, match="missing although the log links it"):
                await sweep(store)
            await put_back(store, newer)
            async with sl.LogReader.open(store) as log:
                assert [each.offset async for each in log.records()] == [*live]
            await sweep(store)
            await check_whole_log(store, compacted=True)

        run(main())

    def test_a_gap_stops_the_sweep_although_nothing_else_is_wrong(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            async with sl.LogWriter.open(store, create=True) as log:
                for number in range(5):
                    await log.append(b"%d" % number)
            manifest, _ = await load_manifest(store)
            lost = manifest.fragments[2].path
            await store.put_if_absent(UploadNames(ids).fragment(1), b"left over")
            await store.delete_many([lost])
            with pytest.raises(Corrupt, match="missing") as caught:
                await sweep(store)
            assert caught.value.path == lost
            assert "newest manifest" in caught.value.hint
            assert (await sweep(store, older_manifest=True)).deleted.objects == 1

        run(main())

    def test_a_load_that_was_linked_last_is_spared(self) -> None:
        async def main() -> None:
            store = await grown(MemoryStore())
            older = await manifest_bytes(store)
            task = await BulkUpload.open(store)
            uploaded = [await task.upload(pa.array([b"a", b"b"], pa.binary()))]
            await link_uploaded(store, uploaded)
            await task.guard.release()
            newer = await manifest_bytes(store)
            await put_back(store, older)
            assert (await sweep(store)).ahead.objects == 1
            await put_back(store, newer)
            assert (await bodies_of(store))[-2:] == [b"a", b"b"]

        run(main())

    def test_what_a_revoked_job_has_uploaded_goes(self) -> None:
        async def main() -> None:
            store = await grown(MemoryStore())
            task = await BulkUpload.open(store)
            await task.upload(pa.array([b"a"], pa.binary()))
            await sweep(store)
            report = await sweep(store, revoke=[task.guard.incarnation])
            assert (report.ahead.objects, report.deleted.objects) == (0, 1)

        run(main())

    def test_a_node_goes_with_the_upload_that_the_same_writer_made(self) -> None:
        """A newer manifest may link both; without the node it could not be put back."""

        async def main() -> None:
            store = MemoryStore()
            await sl.create_log(store)
            older = b""
            async with sl.LogWriter.open(store, options=SMALL_TREE) as log:
                for number in range(6):
                    older = await manifest_bytes(store)
                    await log.append(b"%d" % number)
            newer, reached = await manifest_bytes(store), await check_whole_log(store)
            await put_back(store, older)
            await sweep(store)
            await put_back(store, newer)
            assert await check_whole_log(store) == reached

        run(main())


class TestMarks:
    def test_each_appended_fragment_says_what_was_linked(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            async with sl.LogWriter.open(store, create=True) as log:
                for number in range(3):
                    await log.append(b"%d" % number)
                incarnation = log.incarnation
            manifest, _ = await load_manifest(store)
            marks = [await read_mark(store, e.path, e.num_bytes) for e in manifest.fragments]
            linkers = [None, incarnation, incarnation]
            assert marks == [LinkedMark(n, linkers[n], incarnation) for n in range(3)]

        run(main())

    def test_the_mark_of_a_copied_fragment_says_nothing(self) -> None:
        """It is of another log, whose numbers are not these."""

        async def main() -> None:
            source, target = await grown(MemoryStore("a")), MemoryStore("b")
            await sl.copy_log(source, target, from_offset=5)
            manifest, _ = await load_manifest(target)
            for entry in manifest.fragments:
                assert await read_mark(target, entry.path, entry.num_bytes) is None

        run(main())

    def test_a_long_footer_is_read_whole(self) -> None:
        async def main() -> None:
            store, names = MemoryStore(), UploadNames(ids)
            sink = pa.BufferOutputStream()
            schema = pa.schema([pa.field("body", pa.binary())])
            mark = LinkedMark(7, None, names.incarnation)
            with pq.ParquetWriter(sink, schema, store_schema=False) as file:
                file.add_key_value_metadata({MARK_KEY: mark.text, "long": "x" * 20_000})
            data, path = sink.getvalue().to_pybytes(), names.fragment(1)
            await store.put_if_absent(path, data)
            assert await read_mark(store, path, len(data)) == mark

        run(main())

    @given(st.binary(max_size=64), st.booleans())
    def test_any_bytes_give_a_mark_or_none(self, data: bytes, ends: bool) -> None:
        async def main() -> None:
            store, path = MemoryStore(), UploadNames(ids).fragment(1)
            stored = data + b"PAR1" if ends else data
            await store.put_if_absent(path, stored)
            assert await read_mark(store, path, len(stored)) is None

        run(main())

    @given(st.text(max_size=40))
    def test_any_text_is_a_mark_or_none(self, text: str) -> None:
        mark = parse_mark(text)
        assert mark is None or parse_mark(mark.text) == mark


def manifest_of(*linked: tuple[str, int], tail: int) -> Manifest:
    """A manifest of which only the table and the next number count."""
    made = Manifest.empty("test", "id", first_offset=2)
    return msgspec.structs.replace(made, linked=dict(linked), initial_seq_no=tail + 1)


A, B, C = "a" * 12, "b" * 12, "c" * 12


@pytest.mark.parametrize(
    ("seq_no", "mark", "expected"),
    [
        (9, LinkedMark(8, A, C), Standing.LEFT_OVER),  # another has linked its number
        (11, LinkedMark(10, B, C), Standing.AHEAD),  # the next one
        (11, None, Standing.AHEAD),  # made by 1.0
        (10, None, Standing.LEFT_OVER),
        (12, LinkedMark(11, B, C), Standing.NEWER),  # beyond the tail
        (9, LinkedMark(11, B, C), Standing.NEWER),
        (9, LinkedMark(8, C, C), Standing.NEWER),  # nobody of that name has linked anything
        (9, LinkedMark(9, A, C), Standing.NEWER),  # A has linked 8 at most
        (11, LinkedMark(8, A, C), Standing.LEFT_OVER),  # it meant to link 10 itself
        (11, LinkedMark(8, A, B), Standing.AHEAD),  # it has
    ],
)
def test_what_a_numbered_fragment_tells(
    seq_no: int, mark: LinkedMark | None, expected: Standing
) -> None:
    author = mark.author if mark else C
    path = f"log/Bucket={0:016x}/Writer={author}-1/FragmentSeqNo={seq_no:016x}.parquet"
    assert standing(path, mark, manifest_of((A, 8), (B, 10), tail=10)) is expected


def test_what_other_fragments_tell() -> None:
    manifest = manifest_of((A, 8), (B, 10), tail=10)
    folder = f"log/Bucket={0:016x}/Writer={C}-1"
    staged, compacted = f"{folder}/Staged.parquet", f"{folder}/FragmentSeqNo={1:016x}-{{:016x}}"
    assert standing(staged, LinkedMark(10, B, C), manifest) is Standing.AHEAD
    assert standing(staged, LinkedMark(8, A, C), manifest) is Standing.LEFT_OVER
    assert standing(staged, None, manifest) is Standing.LEFT_OVER
    assert standing(staged, LinkedMark(12, B, C), manifest) is Standing.NEWER
    assert standing(compacted.format(10) + ".parquet", None, manifest) is Standing.LEFT_OVER
    assert standing(compacted.format(11) + ".parquet", None, manifest) is Standing.NEWER


@pytest.mark.parametrize(
    ("seq_no", "mark", "expected"),
    [
        (10, LinkedMark(9, A, C), Standing.NEWER),  # A has linked 8 at most
        (10, LinkedMark(9, None, C), Standing.LEFT_OVER),
        (11, LinkedMark(10, B, C), Standing.AHEAD),
        (11, LinkedMark(10, A, C), Standing.NEWER),
        (11, None, Standing.AHEAD),  # a blank of before: it has no mark
        (12, LinkedMark(11, B, C), Standing.NEWER),
        (12, None, Standing.NEWER),
    ],
)
def test_what_a_blank_tells(seq_no: int, mark: LinkedMark | None, expected: Standing) -> None:
    folder = f"log/Bucket={0:016x}/Writer={C}-1"
    path = f"{folder}/FragmentSeqNo={seq_no:016x}-{seq_no:016x}.parquet"
    assert standing(path, mark, manifest_of((A, 8), (B, 10), tail=10)) is expected


def test_a_table_that_has_dropped_somebody_accuses_nobody() -> None:
    linked = [(f"{number:012x}", number) for number in range(1, LINKED_MAX + 1)]
    manifest = manifest_of(*linked, tail=LINKED_MAX)
    path = f"log/Bucket={0:016x}/Writer={C}-1/FragmentSeqNo={9:016x}.parquet"
    assert standing(path, LinkedMark(8, A, C), manifest) is Standing.LEFT_OVER
    fewer = manifest_of(*linked[1:], tail=LINKED_MAX)
    assert standing(path, LinkedMark(8, A, C), fewer) is Standing.NEWER


def test_a_guard_that_lives_spares_as_before() -> None:
    async def main() -> None:
        store = await grown(MemoryStore())
        guard = await UploadGuard.register(store)
        path = guard.names.fragment(1)
        await store.put_if_absent(path, b"x")
        report = await sweep(store)
        assert [*report.spared] == [guard.incarnation]

    run(main())
