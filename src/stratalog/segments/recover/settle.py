"""What opening changes once everything was found to be whole."""

import contextlib
import logging

from stratalog.indexset import IndexSet
from stratalog.segments.format import (
    CLOSED,
    FOLDERS,
    SUFFIXES,
    Layout,
    live_path,
    put_back_clean_close,
    remove_set_aside,
)
from stratalog.segments.io import FileSystem, write_file
from stratalog.segments.recover.find_files import Found, read_live
from stratalog.segments.recover.read_wal import ReplayedWal

log = logging.getLogger(__name__)


def make_durable(files: FileSystem, layout: Layout, last: ReplayedWal | None) -> None:
    """Sync what was replayed, except the journal, whose successor repeats it.

    If the last sync of a killed process failed, the kernel takes the pages of its batch for clean,
    and another sync would skip them. So the last batch of the last file is first written again over
    itself, with the same bytes.
    """
    last_batch = last.last_batch if last else range(0)
    files.sync_folder("")
    for wal in layout.wals:
        is_last = last is not None and wal == last.wal
        file = files.open_again(wal.path) if is_last and last_batch else files.open(wal.path)
        try:
            if is_last and last_batch:
                again = file.read_at(last_batch.start, len(last_batch))
                file.write_at(last_batch.start, again)
            file.sync()
        finally:
            file.close()


def put_back_closed(files: FileSystem, found: Found) -> None:
    """After an opening that failed: it was closed cleanly, if it was before and is as it was.

    What replaced the journal must be gone durably. Otherwise it could come back and count.
    """
    journals = {found.replayed.path, *found.replayed.unfinished}
    with contextlib.suppress(OSError):
        if found.closed is None or files.exists(CLOSED):
            return
        if {f"journal/{name}" for name in files.list("journal")} == journals:
            files.sync_folder("journal")
            put_back_clean_close(files)


def remove_leftovers(files: FileSystem, found: Found, journal: str) -> None:
    """Remove files that are not named, and rewrite live sets that are missing or damaged.

    ``journal`` is the new one, which has removed its predecessor.
    """
    remove_set_aside(files)
    layout = found.layout
    named = {*layout.paths, found.replayed.path, journal}
    named.update(live_path(checkpoint.path) for checkpoint in layout.checkpoints.values())
    for folder in FOLDERS:
        for name in files.list(folder):
            path = f"{folder}/{name}"
            if path in named:
                continue
            if path.endswith(SUFFIXES):
                files.remove(path)
            else:
                log.warning("%s is not a file of ours and is left alone", path)
    for number, checkpoint in layout.checkpoints.items():
        if read_live(files, checkpoint.path) is None:
            _rewrite_live(files, checkpoint.path, found.checkpoints[number].live)


def _rewrite_live(files: FileSystem, path: str, live: IndexSet) -> None:
    log.warning("the live set beside %s is rewritten from the checkpoint", path)
    new = live_path(path) + ".new"
    write_file(files, new, [live.to_bytes()])
    files.rename(new, live_path(path))
    files.sync_folder("ckpt")
