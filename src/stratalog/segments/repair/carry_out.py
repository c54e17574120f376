"""Carrying out a repair.

Nothing is deleted: what does not count any more is copied to ``doubt``, durably, before the new
journal is begun, and removed from its place after that. A repair that was interrupted is repeated.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import msgspec

from stratalog.errors import Conflict, Corrupt
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.segments.format import (
    DISK,
    DOUBT,
    GROWING_MAJOR,
    HEAD_BYTES,
    WAL_KIND,
    Batch,
    Head,
    Layout,
    WalFile,
    batch_parts,
    remove_clean_close,
    wal_path,
    write_identity,
)
from stratalog.segments.inspect import local_files
from stratalog.segments.io import (
    FileSystem,
    in_thread,
    opened,
    read_file,
    typed_errors,
    write_pieces,
)
from stratalog.segments.recover import replace_kept
from stratalog.segments.repair.plan import DiskLoss, Plan, make_plan, refusal
from stratalog.segments.write_ahead import (
    JOURNAL_KIND,
    begin_journal,
    first_record,
    journal_path,
    remove_other_journals,
)

LOCK = "LOCK"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair has done, or would do."""

    path: str
    refused: str
    """Why the directory cannot be opened. Empty if it can."""
    losses: tuple[DiskLoss, ...]
    """What is given up."""
    moved: tuple[str, ...]
    """Files that do not count any more and are moved to ``doubt``."""
    removed: tuple[str, ...]
    """What was kept in ``doubt`` and is removed, which happens only if nothing is refused."""
    done: bool

    def to_dict(self) -> dict[str, object]:
        """For programs: nothing but what JSON has."""
        lists = {name: list(getattr(self, name)) for name in ("moved", "removed")}
        return {**asdict(self), **lists, "losses": [asdict(each) for each in self.losses]}


async def repair_disk(
    path: str | os.PathLike[str] | FileSystem,
    *,
    accept_loss: bool = False,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> RepairReport:
    """Report what it takes to open a data directory again; with ``accept_loss``, do it.

    If the directory can be opened, ``accept_loss`` removes what was kept in ``doubt``.
    ``Conflict`` if a process has it open, ``Corrupt`` if nothing can be saved.
    """
    files = local_files(path) if isinstance(path, str | os.PathLike) else path
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else repr(path)

    def repair() -> RepairReport:
        doing = "repairing the data directory"
        with typed_errors(doing, name), _locked(files, makes_lock=accept_loss):
            plan = make_plan(files)
            if accept_loss:
                _carry_out(files, plan, runtime)
            return _report(name, plan, done=accept_loss)

    return await in_thread(repair)


def _report(path: str, plan: Plan, *, done: bool) -> RepairReport:
    removed = () if plan.refused else plan.kept
    return RepairReport(path, plan.refused, plan.losses, plan.moved, removed, done)


@contextlib.contextmanager
def _locked(files: FileSystem, *, makes_lock: bool) -> Iterator[None]:
    """Beside a node, files that it is writing would seem damaged.

    A directory that has never had a lock is not in use, and need not get one for a look at it.
    """
    with contextlib.ExitStack() as lock:
        try:
            if makes_lock or files.exists(LOCK):
                lock.enter_context(files.lock(LOCK))
        except BlockingIOError:
            raise Conflict(
                "another process has this data directory open",
                hint="Stop it first. `stratalog disk check` works beside it.",
            ) from None
        yield


def _carry_out(files: FileSystem, plan: Plan, runtime: Runtime) -> None:
    if not plan.refused:
        for path in plan.kept:
            files.remove(path)
        if plan.kept:
            files.sync_folder(DOUBT)
        return
    _copy_aside(files, plan.moved)
    remove_clean_close(files)
    if plan.is_disk_rewritten:
        with contextlib.suppress(FileNotFoundError):
            files.remove(DISK)
        write_identity(files, plan.disk.hex())
    layout = _with_wal(files, plan, runtime)
    _begin_journal(files, plan, layout, runtime)
    folders = set()
    for path in plan.moved:
        with contextlib.suppress(FileNotFoundError):
            if path != DISK:
                files.remove(path)
                folders.add(path.rpartition("/")[0])
    for folder in sorted(folders):
        files.sync_folder(folder)
    if still := refusal(files):
        raise Corrupt(
            f"the directory cannot be opened after the repair: {still}",
            hint="Restore this node's data from other replicas. What was moved is in doubt/.",
        )


def _copy_aside(files: FileSystem, paths: tuple[str, ...]) -> None:
    files.make_folder(DOUBT)
    files.sync_folder("")
    for path in paths:
        kept = f"{DOUBT}/{path.rpartition('/')[2]}"
        number = 0
        while files.exists(kept) and read_file(files, kept) != read_file(files, path):
            number += 1
            kept = f"{DOUBT}/{path.rpartition('/')[2]}.again{number}"
        with opened(files, path) as file:
            size = file.size()
            pieces = ([file.read_at(at, CHUNK_BYTES)] for at in range(0, size, CHUNK_BYTES))
            replace_kept(files, kept, pieces)
    files.sync_folder(DOUBT)


def _with_wal(files: FileSystem, plan: Plan, runtime: Runtime) -> Layout:
    """With a new WAL file that has the batches that are kept, if the old ones do not count."""
    if not plan.batches:
        return plan.layout
    number, nonce = plan.layout.next_wal, runtime.new_id(16)
    path = wal_path(number, nonce)
    head = Head(
        WAL_KIND, plan.disk, bytes.fromhex(nonce), number, plan.batches[0].number, GROWING_MAJOR
    )

    def parts(batch: Batch) -> list[bytes | memoryview]:
        return batch_parts(bytes.fromhex(nonce), batch.number, batch.sections)

    def pieces() -> Iterator[Sequence[bytes | memoryview]]:
        yield [head.to_bytes()]
        for batch in plan.batches or ():
            yield parts(batch)

    size = write_pieces(files, path, pieces())
    files.sync_folder("wal")
    return msgspec.structs.replace(
        plan.layout, wals=(WalFile(number, path, size),), next_wal=number + 1
    )


def _begin_journal(files: FileSystem, plan: Plan, layout: Layout, runtime: Runtime) -> None:
    number, record = plan.file_number + 1, plan.record + 1
    nonce = bytes.fromhex(runtime.new_id(16))
    path = journal_path(number, nonce.hex())
    data, size = first_record(layout, nonce, record)
    head = Head(JOURNAL_KIND, plan.disk, nonce, number, record, GROWING_MAJOR)
    with contextlib.closing(files.create(path)) as file:
        begin_journal(file, head, data, size)
        assert size >= HEAD_BYTES
    files.sync_folder("journal")
    remove_other_journals(files, path)
