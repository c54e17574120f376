"""1.4 million fragments: the size of the root, and the reads that finding a record takes."""

from __future__ import annotations

import time
from random import Random

from bench.object_log.counting import CountingStore
from bench.object_log.growth import RECORDS_PER_FRAGMENT, Growth, first_offset_of
from bench.results import Figure, Series
from bench.session import Session
from stratalog import Limits, LogReader

FRAGMENTS = 1_400_000
FRAGMENTS_QUICK = 10_000
OFFSETS_SOUGHT = 100
PLACE = "memory"

MANIFEST_BYTES_MAX = 32_000
READS_TO_OPEN_MAX = 1
READS_OF_TAIL_MAX = 2
READS_TO_FIND_MAX = 5


async def scale(session: Session) -> None:
    fragments = session.amount(FRAGMENTS, FRAGMENTS_QUICK)
    store = CountingStore()
    growth = Growth(store, fragments, with_data=(fragments // 2, fragments - 1))
    started_s = time.perf_counter()
    manifest = await growth.run()
    took_s = time.perf_counter() - started_s

    def record(name: str, unit: str, value: float, target: float | None = None) -> None:
        session.record(
            Figure(question="scale", name=name, place=PLACE, unit=unit, value=value, target=target)
        )

    record("fragments in the tree", "fragments", fragments)
    record("time to make the tree", "s", took_s)
    record("depth of the tree", "levels", max(node.depth for node in manifest.snapshots))
    record("snapshot puts per manifest put", "puts", store.creations / store.swaps)
    record("largest manifest put", "bytes", store.largest_swap, MANIFEST_BYTES_MAX)
    session.record(
        Series(
            question="scale",
            name="largest root",
            place=PLACE,
            x_unit="fragments",
            y_unit="bytes",
            x=list(growth.root_bytes.keys()),
            y=list(growth.root_bytes.values()),
            limit=MANIFEST_BYTES_MAX,
        )
    )
    opening, tail, middle = await _read(store, fragments)
    record("reads to open", "reads", opening, READS_TO_OPEN_MAX)
    record("reads of the tail, after opening", "reads", tail, READS_OF_TAIL_MAX)
    record("reads of a record in the middle", "reads", middle, READS_TO_FIND_MAX)
    found = await _find(store, fragments)
    record(f"reads to find an offset, most of {OFFSETS_SOUGHT}", "reads", found, READS_TO_FIND_MAX)


async def _read(store: CountingStore, fragments: int) -> tuple[int, int, int]:
    """Reads to open the log, to read its last record, and to read one in the middle."""
    began = store.reads
    async with LogReader.open(store) as reader:
        opened = store.reads
        [last] = [record async for record in reader.records(reader.tail - 1)]
        assert last.offset == reader.tail - 1, "the last record is the one that was asked for"
        read_tail = store.reads
    async with LogReader.open(store) as reader:
        opened_again = store.reads
        wanted = first_offset_of(fragments // 2) + 1
        [record] = [record async for record in reader.records(wanted, wanted + 1)]
        assert record.offset == wanted, "the record is the one that was asked for"
        return opened - began, read_tail - opened, store.reads - opened_again


async def _find(store: CountingStore, fragments: int) -> int:
    """The most reads that finding the fragment of an offset took, each with a cold cache."""
    random = Random(1)
    most = 0
    for _ in range(OFFSETS_SOUGHT):
        offset = first_offset_of(random.randrange(fragments)) + RECORDS_PER_FRAGMENT // 2
        async with LogReader.open(store) as reader:
            opened = store.reads
            [fragment] = await reader.scan(offset, limits=Limits(max_files=1))
            assert fragment.start.offset <= offset < fragment.limit.offset
            most = max(most, store.reads - opened)
    return most
