"""The journal: the commit point of everything but entries.

A file counts if the journal names it. Opening a disk deletes files that it does not name; a file
that it names and that is missing is corruption. Each edit (``layout``) is one frame, synced before
it is applied.

Persisted: keep stable. The head's kind is ``JRN1``, its ``number`` the file's, its ``first`` the
number of its first record, which is ``Whole``. Records are numbered over all journals of a disk.

A journal that has grown is rewritten to a new file. At opening, the journal whose *last* record has
the highest number counts. It follows:

1. A new journal that could not be finished, or whose name was lost, does no harm: the old one goes
   on with higher numbers.
2. A record in doubt is settled by a new journal that leaves it out and has a higher number.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from stratalog.errors import Closed, Corrupt, StratalogError, Unknown
from stratalog.segments.context import DiskContext
from stratalog.segments.format import (
    HEAD_BYTES,
    Edit,
    Head,
    Layout,
    Whole,
    apply,
    decode_edit,
    encode_edit,
    frame_head,
    frames,
    no_longer_named,
)
from stratalog.segments.io import (
    File,
    ReadableFiles,
    Tasks,
    in_sync_thread,
    opened,
    read_file,
    typed,
)

KIND = b"JRN1"
REWRITE_BYTES_MIN = 1 << 20

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The content of a journal."""

    layout: Layout
    path: str
    file_number: int
    last_record: int
    end: int = HEAD_BYTES
    """Where in the file the next record begins."""


class Journal:
    """The open journal of a disk. It commits one edit after another.

    ``commit`` takes a function from the layout to an edit and calls it when its turn comes. The
    layout changes when the edit is durable.
    """

    def __init__(self, context: DiskContext, found: Replayed | None) -> None:
        self.layout = found.layout if found else Layout()
        """The current state: what the records say, minus what the WAL has overwritten since."""
        self.recorded = self.layout
        """What the records say. A replay of the WAL begins with it."""
        self._context = context
        self._file: File | None = None
        self.path = found.path if found else ""
        """Of the current file."""
        self._file_number = found.file_number if found else 0
        self._nonce = b""
        self._last_record = found.last_record if found else 0
        self._position = 0
        self._base = 0
        self._turn = asyncio.Lock()
        self._tasks = Tasks()
        self._is_closed = False
        self._amendments: list[Callable[[Layout], Layout]] = []
        self._unnamed: list[str] = []
        """New files of failed edits. They are removed when a new journal excludes the edits."""

    async def begin(self) -> None:
        """Start a new journal, so that nothing is appended to a torn end."""
        async with self._turn:
            await self._renew()

    async def commit(
        self,
        make: Callable[[Layout], Edit | None],
        *,
        creates: Sequence[str] = (),
        then: Callable[[Edit], None] | None = None,
    ) -> Edit | None:
        """Make an edit durable, apply it and call ``then``, with nothing in between.

        ``creates`` are the new files that the edit names. Files that are no longer named are
        removed. A cancelled caller does not stop it.

        If the edit did not happen, a typed error is raised and its new files are removed. If that
        is in doubt, ``Unknown`` is raised and they are removed when it is settled. ``Closed`` after
        ``close``, when the directory may belong to another process.
        """
        if self._is_closed:
            raise Closed("the disk was closed")
        return await self._tasks.run(self._commit(make, creates, then))

    async def _commit(
        self,
        make: Callable[[Layout], Edit | None],
        creates: Sequence[str],
        then: Callable[[Edit], None] | None,
    ) -> Edit | None:
        async with self._turn:
            try:
                if self._file is None:
                    await self._renew()
                edit = make(self.layout)
                if edit is None:
                    return None
                self._amendments.clear()
                await self._append(edit)
            except StratalogError:
                self._unnamed.extend(creates)
                if self._file is not None:
                    self._give_up_unnamed()
                raise
            before, self.recorded = self.recorded, apply(self.recorded, edit, self.path)
            self.layout = apply(self.layout, edit, self.path)
            for change in self._amendments:
                self.layout = change(self.layout)
            if then is not None:
                then(edit)
            self._context.remove_files(no_longer_named(before, self.recorded))
            if self._position > max(REWRITE_BYTES_MIN, 2 * self._base):
                with contextlib.suppress(StratalogError):
                    await self._renew()
            return edit

    @property
    def is_in_doubt(self) -> bool:
        """Whether the last record may or may not be durable. Nothing may rest on that."""
        return self._file is None and not self._is_closed

    async def settle(self) -> None:
        """If a record is in doubt, begin a new journal that excludes it."""
        async with self._turn:
            if self.is_in_doubt:
                await self._renew()

    def amend(self, change: Callable[[Layout], Layout]) -> None:
        """Apply to the layout what a durable batch of the WAL overwrites.

        ``change`` must be idempotent: if an edit is being written, it is applied again afterwards,
        to the files that the edit names.

        No record is written for it before the batch is in segments. Until then a replay must find
        the entries that earlier batches of the WAL follow.
        """
        self.layout = change(self.layout)
        self._amendments.append(change)

    def remove_unnamed(self, created: Sequence[str]) -> None:
        """Remove those of some new files that the last record does not name."""
        named = self.recorded.paths
        self._context.remove_files([path for path in created if path not in named])

    async def close(self) -> None:
        """Refuse further edits, and wait for those that were begun."""
        self._is_closed = True
        await self._tasks.end()
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _append(self, edit: Edit) -> None:
        """Write and sync one record. If that fails, a new journal excludes it."""
        file, position = self._file, self._position
        assert file is not None
        number = self._last_record + 1
        descriptor = encode_edit(edit)
        data = frame_head(self._nonce, number, descriptor, 0) + descriptor

        def write() -> None:
            file.write_at(position, data)
            file.sync()

        # Used up even if it fails: a later journal begins above it.
        self._last_record = number
        try:
            await in_sync_thread(write)
        except OSError as error:
            failure = typed(error, "writing to the journal", self.path)
            self._close_file()
            try:
                await self._renew()
            except StratalogError:
                raise Unknown(
                    f"{failure}: the record may or may not be durable",
                    hint="Check the disk. The next change settles it, or opening it again.",
                    path=failure.path,
                ) from error
            raise failure from error
        self._position += len(data)

    async def _renew(self) -> None:
        """Begin the next journal with the whole layout in one record, and remove the old one."""
        number, record = self._file_number + 1, self._last_record + 1
        nonce = bytes.fromhex(self._context.new_nonce())
        path = journal_path(number, nonce.hex())
        # Not ``layout``: batches of the WAL may follow entries that later batches overwrite.
        descriptor = encode_edit(Whole(self.recorded))
        head = Head(KIND, self._context.disk, nonce, number, record).to_bytes()
        data = frame_head(nonce, record, descriptor, 0) + descriptor

        def write(file: File) -> None:
            # Two syncs: a file whose head was lost has no record either.
            file.write_at(0, head)
            file.sync()
            file.write_at(HEAD_BYTES, data)
            file.sync()

        self._file_number, self._last_record = number, record
        # From here on the old journal must not be used: the new one may count, whatever fails.
        self._close_file()
        file = await self._context.begin_file(path, write, "beginning a journal")
        old, self.path = self.path, path
        self._file, self._nonce = file, nonce
        self._position = self._base = HEAD_BYTES + len(data)
        if old:
            self._context.remove_files([old])
        self._give_up_unnamed()

    def _give_up_unnamed(self) -> None:
        unnamed, self._unnamed = self._unnamed, []
        if unnamed:
            self._context.remove_files(unnamed)


def journal_path(number: int, nonce: str) -> str:
    return f"journal/{number:012}.{nonce}.journal"


def replay_journal(files: ReadableFiles, disk: bytes) -> Replayed | None:
    """The journal with the highest record; ``None`` if there is none yet.

    A journal whose first record is incomplete was never used. ``Corrupt`` if a record in the
    middle is damaged.
    """
    newest: Replayed | None = None
    for name in files.list("journal"):
        found = _replay_one(files, disk, f"journal/{name}")
        if found is not None and (newest is None or found.last_record >= newest.last_record):
            newest = found
    return newest


def must_exist(replayed: Replayed | None) -> Replayed:
    """``Corrupt`` if no journal was found."""
    if replayed is None:
        raise Corrupt(
            "the data directory has no journal",
            hint="Put it back. Without it nobody knows which files count.",
            path="journal",
        )
    return replayed


def _replay_one(files: ReadableFiles, disk: bytes, path: str) -> Replayed | None:
    data = read_file(files, path)
    try:
        head = Head.from_bytes(data, path).must_be(KIND, disk, path)
    except Corrupt:
        if any(data[HEAD_BYTES:]):
            raise
        return None
    found = _continued(Replayed(Layout(), path, head.number, 0), head, data)
    return found if found.last_record else None


def replay_more(files: ReadableFiles, replayed: Replayed) -> Replayed:
    """The same journal with the records that were added since: for an inspection."""
    with opened(files, replayed.path) as file:
        head = Head.from_bytes(file.read_at(0, HEAD_BYTES), replayed.path)
        data = bytes(HEAD_BYTES) + file.read_at(replayed.end, file.size() - replayed.end)
    rest = replace(head, first=replayed.last_record + 1)
    return _continued(replayed, rest, data, replayed.end - HEAD_BYTES)


def _continued(before: Replayed, head: Head, data: bytes, left_out: int = 0) -> Replayed:
    """With the records in ``data``: a file from which so many bytes are left out after its head."""
    path, layout, last, end = before.path, before.layout, before.last_record, before.end
    for frame in frames(data, head, path, lambda frame: not len(frame.body)):
        layout = apply(layout, decode_edit(frame.descriptor, path), path)
        last, end = frame.number, left_out + frame.end
    return replace(before, layout=layout, last_record=last, end=end)
