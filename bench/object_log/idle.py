"""What an open writer costs that does nothing: resident memory, in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from bench import ROOT
from bench.object_log.growth import first_offset_of
from bench.object_log.workload import WRITER
from bench.results import Figure
from bench.session import Session
from stratalog import Fragment, LogPosition, LogWriter, Manifest, Setsum, SnapshotPointer
from stratalog.objectlog.committer import ROOT_BYTES_MAX
from stratalog.objectlog.fragment import fragment_path
from stratalog.objectlog.linking import note_linked
from stratalog.objectlog.manifest import LINKED_MAX, MANIFEST_PATH
from stratalog.objectlog.snapshot import snapshot_path
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store.memory import MemoryStore

WRITERS = 1000
BYTES_PER_WRITER_MAX = 100_000
MODULE = "bench.object_log.idle"


async def idle(session: Session) -> None:
    found = subprocess.run(
        [sys.executable, "-m", MODULE],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    root_bytes, growth = msgspec.json.decode(found.stdout, type=tuple[int, int])
    session.record(
        Figure(
            question="idle",
            name=f"memory of an idle writer, root of {root_bytes / 1000:.1f} kB",
            place="memory",
            unit="bytes",
            value=growth / WRITERS,
            target=BYTES_PER_WRITER_MAX,
        )
    )
