"""Behaviour 28: every flipped bit and every cut of everything that the manifest reaches, and of
what stands beside it, is named by a scrub and served by no reader."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import pytest
from msgspec.structs import replace

import stratalog as sl
from objectlog.small_logs import SHAPES, append, batches, with_everything_beside
from objectlog.whole_log import replace_bytes, rewrite_manifest, rows_of, run, walk
from stratalog.errors import Corrupt, StratalogError
from stratalog.hashing import digest_of
from stratalog.objectlog.check.fragment_check import examine_fragment
from stratalog.objectlog.check.tree_check import decode_leniently, examine_node_bytes
from stratalog.objectlog.erasure.certificate import CERTIFICATE_PREFIX
from stratalog.objectlog.holds.cursor import decode_cursor
from stratalog.objectlog.holds.stored_pin import decode_pin
from stratalog.objectlog.holds.upload_guard import decode_upload_guard
from stratalog.objectlog.stored import Verify, open_certificate
from stratalog.objectlog.stored.fragment import Fragment, decode_fragment
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, decode_manifest
from stratalog.objectlog.stored.object_digest import check_bytes, promised_digest, with_digest
from stratalog.objectlog.stored.ownership import Kind, own
from stratalog.objectlog.stored.plan import Garbage
from stratalog.objectlog.stored.policy import Policy
from stratalog.objectlog.stored.snapshot import Entry, SnapshotPointer
from stratalog.objectlog.stored.stored_json import decode_document
from stratalog.store import MemoryStore, Store
from stratalog.store.locate import sibling

IN_PROCESS = sl.ScrubOptions(processes=0)
NO_CACHE = sl.ReaderOptions(cache_bytes=0)
SAMPLES = 4


@dataclass
class Reached:
    """An object that the manifest leads to, with its bytes and the entry that promises them."""

    store: Store
    path: str
    data: bytes
    entry: Entry | None

    @property
    def is_covered(self) -> bool:
        return self.entry is None or promised_digest(self.entry) is not None


async def reached(store: Store) -> list[Reached]:
    """The manifest, and everything that it leads to, also in the log that it was forked from."""
    blob = await store.get(MANIFEST_PATH)
    found = [Reached(store, MANIFEST_PATH, blob.data, None)]
    async for entry in walk(store):
        owner = store if entry.base is None else sibling(store, entry.base)
        found.append(Reached(owner, entry.path, (await owner.get(entry.path)).data, entry))
    return found


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Every flip of a bit, and every cut."""
    for position in range(len(data)):
        for bit in range(8):
            bad = bytearray(data)
            bad[position] ^= 1 << bit
            yield f"bit {bit} of byte {position}", bytes(bad)
    for length in range(len(data)):
        yield f"cut to {length}", data[:length]


def is_refused(read: Callable[[], object]) -> bool:
    """Whether a reader refuses it. Any other error is a defect."""
    try:
        read()
    except Corrupt:
        return True
    return False


def read_by(each: Reached) -> Callable[[bytes], object]:
    """What a reader does with the bytes of an object before it believes them."""
    entry = each.entry
    if entry is None:
        return decode_manifest
    if isinstance(entry, Fragment):
        return lambda data: decode_fragment(data, entry)
    return lambda data: check_bytes(data, entry)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_reader_believes_an_object_with_a_flipped_bit_or_a_cut_end(shape: str) -> None:
    async def main() -> None:
        store = await SHAPES[shape](MemoryStore(uuid.uuid4().hex))
        found = await reached(store)
        covered = [each for each in found if each.is_covered]
        assert len(covered) == len(found) or shape in ("mixed", "forked")
        assert any(isinstance(each.entry, Fragment) for each in covered)
        for each in covered:
            read = read_by(each)
            for what, bad in damaged(each.data):
                assert is_refused(partial(read, bad)), f"{each.path}: {what}"

    run(main())


@pytest.mark.parametrize("shape", ["sunk", "compacted_after_a_sink", "tree", "sealed"])
def test_a_scrub_has_a_name_for_each_of_them(shape: str) -> None:
    """One object of each kind, all of its bits; and of the largest kind every cut as well."""

    async def main() -> None:
        store = await SHAPES[shape](MemoryStore(uuid.uuid4().hex))
        kinds = {type(each.entry): each for each in await reached(store)}
        for each in kinds.values():
            for what, bad in damaged(each.data):
                assert named(bad, each.entry), f"{each.path}: {what}"

    run(main(), limit_s=120)


def named(data: bytes, entry: Entry | None) -> bool:
    """Whether a scrub has damage to tell about these bytes."""
    if entry is None:
        found = decode_leniently(data)[1]
    elif isinstance(entry, SnapshotPointer):
        try:
            found = [*examine_node_bytes(data, entry)[1]]
        except Corrupt:
            return True
    else:
        found = [*examine_fragment(data, entry)]
    return any(not each.is_remark for each in found)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_whole_scrub_names_it_nobody_serves_it_and_nothing_is_deleted(shape: str) -> None:
    async def main() -> None:
        chosen = random.Random(7)
        store = await SHAPES[shape](MemoryStore(uuid.uuid4().hex))
        rows = await rows_of(store)
        assert (await sl.scrub(store, options=IN_PROCESS)).clean
        await sl.sweep(store)
        for each in await reached(store):
            if each.is_covered:
                for bad in chosen.sample([bad for _, bad in damaged(each.data)], SAMPLES):
                    await check_named(store, each, bad)
        assert await rows_of(store) == rows

    run(main())


async def read_all(store: Store) -> None:
    async with sl.LogReader.open(store, options=NO_CACHE) as reader:
        async for _ in reader.batches(reader.first_offset):
            pass


async def check_named(store: Store, each: Reached, bad: bytes) -> None:
    """Put the damage, look at everything that could go wrong, and mend it."""
    await replace_bytes(each.store, each.path, bad)
    before = [row.path async for row in each.store.list()]
    report = await sl.scrub(store, options=IN_PROCESS)
    assert each.path in {damage.path for damage in report.damages}, each.path
    with pytest.raises(Corrupt):
        await read_all(store)
    with suppress(StratalogError):
        await sl.sweep(store)
    assert [row.path async for row in each.store.list()] == before
    await replace_bytes(each.store, each.path, each.data)


BESIDE: dict[Kind, Callable[[bytes, str], object]] = {
    Kind.CURSOR: decode_cursor,
    Kind.PIN: decode_pin,
    Kind.STAGE: decode_upload_guard,
    Kind.PLAN: lambda data, path: decode_document(Garbage, data, path),
    Kind.POLICY: lambda data, path: decode_document(Policy, data, path),
    Kind.CERTIFICATE: open_certificate,
}


def test_everything_beside_the_tree_is_covered_too() -> None:
    """Each kind: all flips and cuts by its decoder, and some of them by a whole scrub."""

    async def main() -> None:
        chosen = random.Random(7)
        store = await with_everything_beside(MemoryStore(uuid.uuid4().hex))
        assert (await sl.scrub(store, options=IN_PROCESS)).clean
        seen: set[Kind] = set()
        for path in [row.path async for row in store.list()]:
            name = own(path)
            assert name is not None
            if name.kind not in BESIDE:
                continue
            seen.add(name.kind)
            data = (await store.get(path)).data
            bads = [*damaged(data)]
            decode = BESIDE[name.kind]
            for what, bad in bads:
                assert is_refused(partial(decode, bad, path)), f"{path}: {what}"
            for _, bad in chosen.sample(bads, SAMPLES):
                await replace_bytes(store, path, bad)
                report = await sl.scrub(store, options=IN_PROCESS)
                assert {damage.path for damage in report.damages} == {path}
            await replace_bytes(store, path, data)
        assert seen == {*BESIDE}

    run(main())


def test_a_certificate_that_is_done_is_covered_by_its_own_hash() -> None:
    async def main() -> None:
        store = await with_everything_beside(MemoryStore(uuid.uuid4().hex))
        (path,) = [row.path async for row in store.list(CERTIFICATE_PREFIX)]
        data = (await store.get(path)).data
        assert b'"xxh3' not in data
        assert (await sl.list_certificates(store))[0].complete is not None
        bad = data.replace(b'"first_offset":', b'"first_offset":1')
        await replace_bytes(store, path, bad)
        with pytest.raises(Corrupt, match="something else than when it was written"):
            await sl.list_certificates(store)

    run(main())


@pytest.mark.s3
def test_it_is_noticed_in_a_bucket(s3_url: str) -> None:
    async def main() -> None:
        chosen = random.Random(7)
        store = sl.open_store(s3_url)
        await append(store, *batches(9), tree=True)
        await sl.sweep(store)
        for each in await reached(store):
            ((_, bad),) = chosen.sample([*damaged(each.data)], 1)
            await check_named(store, each, bad)
        assert (await sl.scrub(store, options=IN_PROCESS)).clean

    run(main())


def test_a_reader_that_hashes_records_notices_what_a_digest_was_made_for() -> None:
    """Whoever changes records can compute their digest. Only the sum tells, and it is asked for."""

    async def main() -> None:
        store = MemoryStore(uuid.uuid4().hex)
        await append(store, [b"true"], [b"last"])
        await forge(store, b"true", b"fake")
        async with sl.LogReader.open(store) as reader:
            assert [row.body async for row in reader.records()] == [b"fake", b"last"]
        async with sl.LogReader.open(store, options=sl.ReaderOptions(verify="records")) as reader:
            with pytest.raises(Corrupt, match="does not add up"):
                await reader.to_arrow()
        assert not (await sl.scrub(store, options=IN_PROCESS)).clean
        assert not (await sl.verify(store)).proven

    run(main())


async def forge(store: Store, before: bytes, after: bytes) -> None:
    """Change a record as somebody would who knows the format."""
    (entry, *rest) = decode_manifest((await store.get(MANIFEST_PATH)).data).fragments
    data = (await store.get(entry.path)).data
    assert before in data
    forged = data.replace(before, after)
    await replace_bytes(store, entry.path, forged)
    entry = with_digest(entry, digest_of(forged))
    await rewrite_manifest(store, lambda manifest: replace(manifest, fragments=(entry, *rest)))


@pytest.mark.parametrize("verify", [True, False, "records"])
def test_each_way_to_verify_gives_the_records_of_a_good_log(verify: Verify) -> None:
    async def main() -> None:
        for make in SHAPES.values():
            store = await make(MemoryStore(uuid.uuid4().hex))
            options = sl.ReaderOptions(verify=verify)
            async with sl.LogReader.open(store, options=options) as reader:
                rows = [
                    (row.offset, row.timestamp_us, row.body)
                    async for row in reader.records(reader.first_offset)
                ]
            assert rows == await rows_of(store)

    run(main())
