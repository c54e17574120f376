"""Behaviour 29: software of format 1.0 and of 1.1 on one log. Nothing of 1.0 passes for damage."""

from __future__ import annotations

import uuid
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

import stratalog as sl
from objectlog.small_logs import append, batches
from objectlog.whole_log import bodies_of, check_whole_log, replace_bytes, run
from stratalog.errors import Corrupt
from stratalog.objectlog.branch import copy_source
from stratalog.objectlog.holds.cursor import StoredCursor, cursor_path
from stratalog.objectlog.stored.fragment import encode_fragment
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, Manifest, decode_manifest
from stratalog.objectlog.stored.names import UploadNames
from stratalog.objectlog.stored.object_digest import promised_digest, with_digest
from stratalog.objectlog.tree.link_fragments import link
from stratalog.runtime import Runtime
from stratalog.store import MemoryStore, Store

IN_PROCESS = sl.ScrubOptions(processes=0)


def new_store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


async def append_as_1_0(store: Store, *bodies: bytes) -> None:
    """One append of software that keeps the fields it does not know, and makes none of them."""
    blob = await store.get(MANIFEST_PATH)
    before = Manifest.from_json(blob.data)  # does not look at the end, as 1.0 does not
    names, tail = UploadNames(Runtime()), before.tail
    encoded = encode_fragment(tail.offset, tail.timestamp_us, bodies)
    path = names.fragment(before.next_seq_no)
    await store.put_if_absent(path, encoded.data)
    entry = sl.Fragment(
        path=path,
        seq_no=before.next_seq_no,
        start=tail,
        limit=sl.LogPosition(tail.offset + len(bodies), tail.timestamp_us),
        num_bytes=len(encoded.data),
        setsum=encoded.setsum,
    )
    after = link(before, [entry], names.incarnation, "1.0", Runtime().new_id())
    await store.put_if_match(MANIFEST_PATH, after.to_json(), blob.etag)


async def ends_with_digest(store: Store, path: str) -> bool:
    stored: dict[str, Any] = msgspec.json.decode((await store.get(path)).data)
    return "xxh3" in stored and stored["xxh3_of"] == stored["write_id"]


def test_writers_of_both_kinds_take_turns() -> None:
    async def main() -> None:
        store = new_store()
        for number in range(6):
            await append(store, [b"new %d" % number], tree=True)
            assert await ends_with_digest(store, MANIFEST_PATH)
            await append_as_1_0(store, b"old %d" % number)
            assert not await ends_with_digest(store, MANIFEST_PATH)
            assert (await sl.scrub(store, options=IN_PROCESS)).clean
        await check_whole_log(store)
        expected = [b"%s %d" % (who, n) for n in range(6) for who in (b"new", b"old")]
        assert await bodies_of(store) == expected
        (manifest, _), promised = await loaded(store), []
        async with sl.LogReader.open(store) as reader:
            promised = [promised_digest(each) is not None for each in await reader.scan()]
        assert promised == [True, False] * 6
        assert manifest.format == "1.1"

    run(main())


async def loaded(store: Store) -> tuple[Manifest, bytes]:
    data = (await store.get(MANIFEST_PATH)).data
    return decode_manifest(data), data


def test_damage_in_what_1_0_has_written_is_found_as_1_0_found_it() -> None:
    async def main() -> None:
        store = new_store()
        await append(store, [b"first"])
        await append_as_1_0(store, b"second")
        manifest, data = await loaded(store)
        fragment = manifest.fragments[1]
        good = (await store.get(fragment.path)).data
        await replace_bytes(store, fragment.path, good.replace(b"second", b"sEcond"))
        with pytest.raises(Corrupt, match="does not add up"):
            await bodies_of(store)
        await replace_bytes(store, fragment.path, good)
        # A flip in one of the two ids does not look like another rewrite of 1.0.
        end = data.rindex(b'"xxh3_of":"') + len(b'"xxh3_of":"')
        assert data[end : end + 12] != (manifest.write_id or "").encode()

    run(main())


def test_a_cursor_that_1_0_has_moved_is_moved_on() -> None:
    async def main() -> None:
        store = new_store()
        await append(store, *batches(3))
        await sl.CursorStore(store).create("c", 2)
        path = cursor_path("c")
        blob = await store.get(path)
        stored = StoredCursor.from_json(blob.data)
        moved = msgspec.structs.replace(
            stored, position=sl.LogPosition(3), write_id=Runtime().new_id()
        )
        await store.put_if_match(path, moved.to_json(), blob.etag)
        cursor = await sl.CursorStore(store).load("c")
        assert cursor.offset == 3
        assert not await ends_with_digest(store, path)
        await cursor.move(4)
        assert await ends_with_digest(store, path)
        assert (await sl.scrub(store, options=IN_PROCESS)).clean

    run(main())


def test_a_fork_in_which_1_0_has_divided_a_fragment_reads_well() -> None:
    """It keeps the digest of the whole in the entry of the half."""

    async def main() -> None:
        store = new_store()
        await append(store, [b"one", b"two", b"three"])
        manifest, data = await loaded(store)
        (whole,) = manifest.fragments
        half = encode_fragment(1, whole.start.timestamp_us, [b"one", b"two"])
        path = UploadNames(Runtime()).fragment(1)
        await store.put_if_absent(path, half.data)
        entry = msgspec.structs.replace(
            whole,
            path=path,
            limit=sl.LogPosition(3, whole.limit.timestamp_us),
            num_bytes=len(half.data),
            setsum=half.setsum,
        )
        assert entry.xxh3 == whole.xxh3 is not None
        divided = msgspec.structs.replace(
            Manifest.from_json(data),
            setsum=half.setsum,
            fragments=(entry,),
            write_id=Runtime().new_id(),
        )
        await replace_bytes(store, MANIFEST_PATH, divided.to_json())
        assert await bodies_of(store) == [b"one", b"two"]
        assert (await sl.scrub(store, options=IN_PROCESS)).clean

    run(main())


def test_a_copy_compares_bytes_and_decodes_only_what_has_no_digest() -> None:
    async def main() -> None:
        source, target = new_store(), new_store()
        await append(source, *batches(4))
        await append_as_1_0(source, b"old")
        decoded: list[str] = []
        decode = copy_source.decode_fragment

        def noting(data: bytes, entry: sl.Fragment) -> object:
            decoded.append(entry.path)
            return decode(data, entry)

        with patch.object(copy_source, "decode_fragment", noting):
            await sl.copy_log(source, target)
        manifest, _ = await loaded(source)
        assert decoded == [manifest.fragments[-1].path]
        copied, _ = await loaded(target)
        assert all(promised_digest(each) is not None for each in copied.fragments)
        assert await bodies_of(target) == await bodies_of(source)
        assert (await sl.scrub(target, options=IN_PROCESS)).clean

    run(main())


def test_a_copy_of_damaged_bytes_fails() -> None:
    async def main() -> None:
        source, target = new_store(), new_store()
        await append(source, *batches(4))
        manifest, _ = await loaded(source)
        path = manifest.fragments[1].path
        data = (await source.get(path)).data
        place = data.index(b"parquet-cpp-arrow")
        await replace_bytes(source, path, data[:place] + b"q" + data[place + 1 :])
        with pytest.raises(Corrupt, match="does not hold the bytes") as caught:
            await sl.copy_log(source, target)
        assert caught.value.path == path

    run(main())


def test_a_repaired_tree_has_digests_everywhere() -> None:
    async def main() -> None:
        store = new_store()
        await append(store, *batches(9), tree=True)
        manifest, _ = await loaded(store)
        pointer = manifest.snapshots[0]
        node = (await store.get(pointer.path)).data
        await replace_bytes(store, pointer.path, node.replace(b'"writer":"', b'"writer":"x'))
        report = await sl.scrub(store, options=IN_PROCESS)
        assert {each.kind.value for each in report.damages} == {"snapshot-digest"}
        assert (await sl.repair(store, report)).complete
        assert (await sl.scrub(store, options=IN_PROCESS)).clean
        async with sl.LogReader.open(store) as reader:
            found = await reader.scan()
            assert all(promised_digest(each) is not None for each in found)
            assert all(promised_digest(each) is not None for each in reader.manifest.snapshots)
        assert with_digest(found[0], None).xxh3 is None

    run(main())
