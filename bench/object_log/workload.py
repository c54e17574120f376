"""The records to append, and the unavoidable work of appending them: straight loops.

The straight loops share the encoder, the threads and the stores with the writer, and nothing else:
no queue, no futures, no order, no tree.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from random import Random

import msgspec

from bench.places import Place
from stratalog.objectlog.append.uploader import ENCODE_INLINE_BYTES_MAX
from stratalog.objectlog.options import KIB, MIB, RECORD_OVERHEAD_BYTES, WriterOptions
from stratalog.objectlog.stored.fragment import (
    EncodedFragment,
    Fragment,
    encode_fragment,
    fragment_path,
)
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, Manifest, encode_manifest
from stratalog.objectlog.stored.position import LogPosition
from stratalog.objectlog.tree.link_fragments import link
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import open_store
from stratalog.store.protocol import Store

FRAGMENT_BYTES = 1 * MIB
IN_FLIGHT = WriterOptions().uploads_max
INCARNATION = "0123456789ab"
WRITER = "straight-loop"

Batch = Sequence[bytes]


def make_bodies(count: int, size: int, seed: int = 1) -> list[bytes]:
    """Random bytes: nothing to compress, so every byte is stored."""
    random = Random(seed)
    return [random.randbytes(size) for _ in range(count)]


def make_batches(fragments: int, record_bytes: int) -> list[list[bytes]]:
    """Batches that fill a fragment each."""
    per_fragment = FRAGMENT_BYTES // (record_bytes + RECORD_OVERHEAD_BYTES)
    bodies = make_bodies(fragments * per_fragment, record_bytes)
    return split(bodies, per_fragment)


def split(bodies: list[bytes], size: int) -> list[list[bytes]]:
    return [bodies[start : start + size] for start in range(0, len(bodies), size)]


def size_of(batches: Iterable[Batch]) -> int:
    return sum(len(body) for batch in batches for body in batch)


def label(record_bytes: int) -> str:
    return f"{record_bytes // KIB} KiB"


async def timed(work: Awaitable[object]) -> float:
    started_s = time.perf_counter()
    await work
    return time.perf_counter() - started_s


async def rate(batches: Sequence[Batch], work: Awaitable[object]) -> float:
    """Megabytes of records per second."""
    return size_of(batches) / 1e6 / await timed(work)


@asynccontextmanager
async def fresh_store(place: Place) -> AsyncIterator[Store]:
    """An empty store after one write, so that its set-up is done."""
    url = place.new()
    store = open_store(url)
    await store.put_if_absent("warm-up", b"1")
    try:
        yield store
    finally:
        place.drop(url)


async def closed_loop(
    tasks: int, bodies: Sequence[bytes], work: Callable[[bytes], Awaitable[object]]
) -> None:
    """Run a number of callers, each of which sends its next body after the last answer."""
    remaining = iter(bodies)

    async def caller() -> None:
        for body in remaining:
            await work(body)

    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(caller())


async def put_fragments(store: Store, batches: Sequence[Batch], in_flight: int = IN_FLIGHT) -> None:
    """Hash, encode and put, a number of fragments at a time. No manifest."""
    numbered = _numbered(batches)

    async def worker() -> None:
        for seq_no, first_offset, batch in numbered:
            await _put_fragment(store, seq_no, first_offset, batch)

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(worker())


async def put_fragments_and_manifests(
    store: Store, batches: Sequence[Batch], started: Manifest, etag: str
) -> None:
    """Hash, encode, put, and swap a manifest that links it; one after the other."""
    for seq_no, first_offset, batch in _numbered(batches):
        fragment = await _put_fragment(store, seq_no, first_offset, batch)
        manifest = link(
            started, [_as_next(started, fragment)], INCARNATION, WRITER, DEFAULT_RUNTIME.new_id()
        )
        etag = await store.put_if_match(MANIFEST_PATH, encode_manifest(manifest), etag)


async def start_manifest(store: Store, entries: int = 12) -> tuple[Manifest, str]:
    """Store a manifest of the typical size of a log's root."""
    manifest = Manifest.empty(WRITER, DEFAULT_RUNTIME.new_id())
    timestamp_us = DEFAULT_RUNTIME.now_us()
    encoded = encode_fragment(1, timestamp_us, [b"one"])
    for number in range(1, entries + 1):
        entry = _entry(number, number, 1, timestamp_us, encoded)
        manifest = link(manifest, [entry], INCARNATION, WRITER, DEFAULT_RUNTIME.new_id())
    etag = await store.put_if_absent(MANIFEST_PATH, encode_manifest(manifest))
    return manifest, etag


def _numbered(batches: Iterable[Batch]) -> Iterator[tuple[int, int, Batch]]:
    first_offset = 1
    for seq_no, batch in enumerate(batches, start=1):
        yield seq_no, first_offset, batch
        first_offset += len(batch)


async def _put_fragment(store: Store, seq_no: int, first_offset: int, batch: Batch) -> Fragment:
    timestamp_us = DEFAULT_RUNTIME.now_us()

    def encode() -> EncodedFragment:
        return encode_fragment(first_offset, timestamp_us, batch)

    if size_of([batch]) <= ENCODE_INLINE_BYTES_MAX:
        encoded = encode()
    else:
        encoded = await DEFAULT_RUNTIME.compute(encode)
    fragment = _entry(seq_no, first_offset, len(batch), timestamp_us, encoded)
    await store.put_if_absent(fragment.path, encoded.data)
    return fragment


def _entry(
    seq_no: int, first_offset: int, count: int, timestamp_us: int, encoded: EncodedFragment
) -> Fragment:
    path = fragment_path(seq_no, INCARNATION, seq_no)
    entry = Fragment(
        path=path,
        seq_no=seq_no,
        start=LogPosition(first_offset, timestamp_us),
        limit=LogPosition(first_offset + count, timestamp_us),
        num_bytes=len(encoded.data),
        setsum=encoded.setsum,
    )
    return entry.linking(path, encoded)


def _as_next(manifest: Manifest, fragment: Fragment) -> Fragment:
    """The entry moved to the end of the manifest, so that all manifests are of equal size."""
    tail = manifest.tail
    limit = LogPosition(tail.offset + fragment.count, fragment.limit.timestamp_us)
    return msgspec.structs.replace(
        fragment,
        seq_no=manifest.next_seq_no,
        start=LogPosition(tail.offset, fragment.start.timestamp_us),
        limit=limit,
    )
