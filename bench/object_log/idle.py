"""The cost of an idle open writer: resident memory, in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import msgspec

from bench.object_log.workload import FRAGMENT_BYTES, WRITER
from bench.processes import give_answer, run_module
from bench.results import Figure
from bench.session import Session
from stratalog import Fragment, LogPosition, LogWriter, Manifest, Setsum, SnapshotPointer
from stratalog.objectlog.append.committer import ROOT_BYTES_MAX
from stratalog.objectlog.stored.fragment import fragment_path
from stratalog.objectlog.stored.manifest import LINKED_MAX, MANIFEST_PATH
from stratalog.objectlog.stored.snapshot import Entry, snapshot_path
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store.memory import MemoryStore

WRITERS = 1000
WRITERS_TO_WARM_UP = 50
BYTES_PER_WRITER_MAX = 100_000
FIRST_SEQ_NO = 1_000_000
FIRST_OFFSET = 10**12
RECORDS_PER_ENTRY = 1008


class Answer(msgspec.Struct):
    """The answer of the child: the size of the root, and the growth of the process."""

    root_bytes: int
    growth_bytes: int


async def idle(session: Session) -> None:
    found = await run_module("bench.object_log.idle", answer=Answer)
    session.record(
        Figure(
            question="idle",
            name=f"memory of one of {WRITERS:,} idle writers, root of {found.root_bytes:,} bytes",
            place="memory",
            unit="bytes",
            value=found.growth_bytes / WRITERS,
            target=BYTES_PER_WRITER_MAX,
        )
    )


def full_root() -> Manifest:
    """A root with the most entries allowed, half of them snapshots, and a full table of writers."""
    incarnations = [DEFAULT_RUNTIME.new_id() for _ in range(LINKED_MAX)]
    manifest = msgspec.structs.replace(
        Manifest.empty(WRITER, DEFAULT_RUNTIME.new_id()),
        linked={each: FIRST_SEQ_NO + number for number, each in enumerate(incarnations)},
    )
    count = 2
    while True:
        larger = _with_entries(manifest, count)
        if len(larger.to_json()) > ROOT_BYTES_MAX:
            return _with_entries(manifest, count - 2)
        count += 2


def _with_entries(manifest: Manifest, count: int) -> Manifest:
    snapshots = tuple(_snapshot(number) for number in range(count // 2))
    fragments = tuple(_fragment(number) for number in range(count // 2, count))
    entries: tuple[Entry, ...] = (*snapshots, *fragments)
    return msgspec.structs.replace(
        manifest,
        setsum=Setsum.total(entry.setsum for entry in entries),
        snapshots=snapshots,
        fragments=fragments,
    )


def _snapshot(number: int) -> SnapshotPointer:
    setsum = Setsum.of(b"%d" % number)
    return SnapshotPointer(
        setsum=setsum,
        path_to_snapshot=snapshot_path(setsum, DEFAULT_RUNTIME.new_id(), 100_000 + number),
        depth=1,
        start=_position(number),
        limit=_position(number + 1),
        num_bytes=64 * FRAGMENT_BYTES + number,
    )


def _fragment(number: int) -> Fragment:
    seq_no = FIRST_SEQ_NO + number
    return Fragment(
        path=fragment_path(seq_no, DEFAULT_RUNTIME.new_id(), 100_000 + number),
        seq_no=seq_no,
        start=_position(number),
        limit=_position(number + 1),
        num_bytes=FRAGMENT_BYTES + number,
        setsum=Setsum.of(b"%d" % number),
    )


def _position(number: int) -> LogPosition:
    return LogPosition(FIRST_OFFSET + number * RECORDS_PER_ENTRY, DEFAULT_RUNTIME.now_us())


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _measure() -> Answer:
    store = MemoryStore()
    root = full_root().to_json()
    await store.put_if_absent(MANIFEST_PATH, root)
    open_writers = [await LogWriter.open(store) for _ in range(WRITERS_TO_WARM_UP)]
    before = resident_bytes()
    open_writers += [await LogWriter.open(store) for _ in range(WRITERS)]
    growth_bytes = resident_bytes() - before
    for log in open_writers:
        await log.close()
    return Answer(len(root), growth_bytes)


if __name__ == "__main__":
    give_answer(asyncio.run(_measure()))
