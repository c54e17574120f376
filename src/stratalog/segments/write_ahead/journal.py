"""The journal: the commit point of everything but entries.

A file counts if the journal names it. Opening a disk deletes files that it does not name; a file
that it names and that is missing is corruption. Each edit (``layout``) is one frame, written twice
and synced twice before it is applied: a second copy proves that the first one was durable.

Persisted: keep stable. The head's kind is ``JRN1``, its ``number`` the file's, its ``first`` the
number of its first record, which is ``Whole`` and has the size of the file. Records are numbered
over all journals of a disk. ``read_journal`` says which of them count.

A journal has its full size from the start, since a file that is shorter was cut. When it is full,
it is rewritten to a new file, which is used only when the old one is gone, durably. At opening, the
journal whose *last* record has the highest number counts. It follows:

1. A new journal that could not be finished, or whose name was lost, does no harm: the old one goes
   on with higher numbers, after the new one is gone.
2. A record in doubt is settled by a new journal that leaves it out and has a higher number.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from stratalog.errors import Closed, StratalogError, Unknown
from stratalog.segments.context import DiskContext
from stratalog.segments.format import (
    GROWING_MAJOR,
    HEAD_BYTES,
    Edit,
    FileEnd,
    Head,
    Layout,
    Whole,
    apply,
    encode_edit,
    frame_head,
    no_longer_named,
)
from stratalog.segments.io import File, FileSystem, Tasks, in_sync_thread, typed
from stratalog.segments.write_ahead.read_journal import (
    JOURNAL_KIND,
    JOURNAL_SUFFIX,
    Replayed,
    journal_path,
)

FILE_BYTES_MIN = 1 << 20
"""The size of a journal, unless its first record needs more."""
RECORDS_AHEAD = 4
"""A journal has room for as many copies of its first record, so that it is rarely rewritten."""
COPIES = 2
SIZE_BYTES_MAX = 64
"""More than what the size adds to the first record."""


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
        self._size = 0
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

    async def close(self) -> FileEnd | None:
        """Refuse further edits, and wait for those that were begun.

        Gives where the journal ends, unless its last record is in doubt.
        """
        self._is_closed = True
        await self._tasks.end()
        if self._file is None:
            return None
        self._close_file()
        return FileEnd(self.path, self._size, self._position, self._last_record)

    @property
    def number(self) -> int:
        """Of the current file."""
        return self._file_number

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _append(self, edit: Edit) -> None:
        """Write and sync both copies of a record. If that fails, a new journal excludes it."""
        descriptor = encode_edit(edit)
        room = COPIES * (len(frame_head(b"", 0, descriptor, 0)) + len(descriptor))
        if self._position + room > self._size:
            await self._renew(room)
        file, position = self._file, self._position
        assert file is not None
        number = self._last_record + 1
        data = frame_head(self._nonce, number, descriptor, 0) + descriptor
        # Used up even if it fails: a later journal begins above it.
        self._last_record = number
        try:
            await in_sync_thread(lambda: _write_copies(file, position, data))
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
        self._position += room

    async def _renew(self, room: int = 0) -> None:
        """Begin the next journal with the whole layout in one record, and remove the old one.

        ``room`` is what the next record needs.
        """
        number, record = self._file_number + 1, self._last_record + 1
        nonce = bytes.fromhex(self._context.new_nonce())
        path = journal_path(number, nonce.hex())
        # Not ``layout``: batches of the WAL may follow entries that later batches overwrite.
        data, size = first_record(self.recorded, nonce, record, room)
        head = Head(JOURNAL_KIND, self._context.disk, nonce, number, record, GROWING_MAJOR)

        def write(file: File) -> None:
            begin_journal(file, head, data, size)

        self._file_number, self._last_record = number, record
        # From here on the old journal must not be used: the new one may count, whatever fails.
        self._close_file()
        file = await self._context.begin_file(path, write, "beginning a journal")
        self.path = path
        try:
            await in_sync_thread(lambda: remove_other_journals(self._context.files, path))
        except OSError as error:
            file.close()
            raise typed(error, "removing the journal before", path) from error
        self._file, self._nonce = file, nonce
        self._position, self._size = HEAD_BYTES + COPIES * len(data), size
        self._give_up_unnamed()

    def _give_up_unnamed(self) -> None:
        unnamed, self._unnamed = self._unnamed, []
        if unnamed:
            self._context.remove_files(unnamed)


def first_record(layout: Layout, nonce: bytes, record: int, room: int = 0) -> tuple[bytes, int]:
    """One copy of the first record of a journal, and the size of the file, which is in it."""
    expected = len(encode_edit(Whole(layout))) + SIZE_BYTES_MAX
    least = HEAD_BYTES + COPIES * (expected + len(frame_head(nonce, record, b"", 0))) + room
    size = max(FILE_BYTES_MIN, RECORDS_AHEAD * expected, least)
    descriptor = encode_edit(Whole(layout, size))
    return frame_head(nonce, record, descriptor, 0) + descriptor, size


def begin_journal(file: File, head: Head, data: bytes, size: int) -> None:
    """Write a new journal. Its head and its size are durable before its first record is there."""
    file.write_at(0, head.to_bytes())
    file.allocate(size)
    file.sync()
    _write_copies(file, HEAD_BYTES, data)


def _write_copies(file: File, position: int, data: bytes) -> None:
    for copy in range(COPIES):
        file.write_at(position + copy * len(data), data)
        file.sync()


def remove_other_journals(files: FileSystem, kept: str) -> None:
    """Durably, so that nothing rests on a journal while another one could count in its place."""
    others = [f"journal/{name}" for name in files.list("journal") if name.endswith(JOURNAL_SUFFIX)]
    others = [path for path in others if path != kept]
    for path in others:
        with contextlib.suppress(FileNotFoundError):
            files.remove(path)
    if others:
        files.sync_folder("journal")
