"""The journal: the positive commit point of everything but entries.

A file is there if the journal names it. What it does not name is deleted at opening; what it names
and is not there is corruption. Each edit (``layout``) is one frame, synced before it counts.

Persisted: keep stable. The head's kind is ``JRN1``, its ``number`` the file's, its ``first`` the
number of its first record, which is ``Whole``. Records are numbered over all journals of a disk.

A journal that has grown is rewritten to the next one. At opening the one whose *last* record has
the highest number counts. So a new one that could not be finished, or not be made to stay, does no
harm while the old one goes on; and if nobody knows whether a record became durable, a new journal
that leaves it out, with a higher number, settles it.
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
    Frame,
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
    """What a journal says."""

    layout: Layout
    path: str
    file_number: int
    last_record: int
    end: int = HEAD_BYTES
    """Where in the file the next record begins."""


class Journal:
    """The open journal of a disk. Edits are committed one after another.

    ``commit`` takes a function from the layout to an edit, so that it is made from the layout as
    it is when its turn comes; the layout changes when the edit is durable.
    """

    def __init__(self, context: DiskContext, found: Replayed | None) -> None:
        self.layout = found.layout if found else Layout()
        """What counts now: what the records say, without what the WAL has overwritten since."""
        self.recorded = self.layout
        """What the records say, and a replay of the WAL begins with."""
        self._context = context
        self._file: File | None = None
        self._path = found.path if found else ""
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
        """Files that a failed edit may have named: they go when a journal says that it did not."""

    @property
    def path(self) -> str:
        """Of the file that is written to."""
        return self._path

    async def begin(self) -> None:
        """Start a journal of our own, so that nothing is ever added to a torn end."""
        async with self._turn:
            await self._renew()

    async def commit(
        self,
        make: Callable[[Layout], Edit | None],
        *,
        creates: Sequence[str] = (),
        then: Callable[[Edit], None] | None = None,
    ) -> Edit | None:
        """Make an edit durable, then apply it, and in the same breath do ``then``.

        ``creates`` are new files that it names. Files that no record names any more are removed.

        Raises a typed error if it did not happen, and ``Unknown`` if nobody knows. Then its files
        are removed: at once, or as soon as it is sure that no record names them. It goes on to its
        end if the caller gives up. ``Closed`` after ``close``: the directory may belong to another
        process by then.
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
            before, self.recorded = self.recorded, apply(self.recorded, edit, self._path)
            self.layout = apply(self.layout, edit, self._path)
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
        """Whether a record may be there that nobody counts on. Nothing may be built on that."""
        return self._file is None and not self._is_closed

    async def settle(self) -> None:
        """Let a new journal say that a record which is in doubt did not happen."""
        async with self._turn:
            if self.is_in_doubt:
                await self._renew()

    def amend(self, change: Callable[[Layout], Layout]) -> None:
        """Change the layout by what a durable batch of the WAL says: replay comes to the same.

        No record says so before that batch is in segments: what came before it in the WAL must
        find what it followed when it is replayed.

        What it does to files that an edit is just about to name is made up for afterwards, so doing
        it twice must be the same as doing it once.
        """
        self.layout = change(self.layout)
        self._amendments.append(change)

    async def close(self) -> None:
        """Wait for the records that were begun; no other is taken."""
        self._is_closed = True
        await self._tasks.end()
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _append(self, edit: Edit) -> None:
        """Write and sync one record. If that fails, a new journal says that it did not happen."""
        file, position = self._file, self._position
        assert file is not None
        number = self._last_record + 1
        descriptor = encode_edit(edit)
        data = frame_head(self._nonce, number, descriptor, 0) + descriptor

        def write() -> None:
            file.write_at(position, data)
            file.sync()

        # Whatever comes of it, this number is spent: a later journal begins above it.
        self._last_record = number
        try:
            await in_sync_thread(write)
        except OSError as error:
            failure = typed(error, "writing to the journal", self._path)
            self._close_file()
            try:
                await self._renew()
            except StratalogError:
                raise Unknown(
                    f"{failure}: the record may be there, or not",
                    hint="Look at the disk. The next change settles it, or opening it again.",
                    path=failure.path,
                ) from error
            raise failure from error
        self._position += len(data)

    async def _renew(self) -> None:
        """Begin the next journal with everything in one record, and let the old one go."""
        number, record = self._file_number + 1, self._last_record + 1
        nonce = bytes.fromhex(self._context.new_nonce())
        path = journal_path(number, nonce.hex())
        # Not the layout: what the WAL has cut off may be followed there by what it still has.
        descriptor = encode_edit(Whole(self.recorded))
        head = Head(KIND, self._context.disk, nonce, number, record).to_bytes()
        data = frame_head(nonce, record, descriptor, 0) + descriptor

        def write(file: File) -> None:
            # One after the other, so that a file without a head has nothing else either.
            file.write_at(0, head)
            file.sync()
            file.write_at(HEAD_BYTES, data)
            file.sync()

        self._file_number, self._last_record = number, record
        # There is no way back to the old one: the new one may count already, whatever fails.
        self._close_file()
        file = await self._context.begin_file(path, write, "beginning a journal")
        old, self._path = self._path, path
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
    """What the journal with the highest record says; ``None`` if there is none yet.

    A journal whose first record is not whole was never used. ``Corrupt`` if a record in the middle
    of one is damaged.
    """
    newest: Replayed | None = None
    for name in files.list("journal"):
        found = _replay_one(files, disk, f"journal/{name}")
        if found is not None and (newest is None or found.last_record >= newest.last_record):
            newest = found
    return newest


def _replay_one(files: ReadableFiles, disk: bytes, path: str) -> Replayed | None:
    data = read_file(files, path)
    try:
        head = Head.from_bytes(data, path).must_be(KIND, disk, path)
    except Corrupt:
        if any(data[HEAD_BYTES:]):
            raise
        return None
    layout, last, end = Layout(), 0, HEAD_BYTES
    for frame in frames(data, head, path, _has_no_body):
        layout = apply(layout, decode_edit(frame.descriptor, path), path)
        last, end = frame.number, frame.end
    if not last:
        return None
    return Replayed(layout, path, head.number, last, end)


def replay_more(files: ReadableFiles, replayed: Replayed) -> Replayed:
    """What the same journal says now, if records were added: for those who look on."""
    path, start = replayed.path, replayed.end - HEAD_BYTES
    with opened(files, path) as file:
        head = Head.from_bytes(file.read_at(0, HEAD_BYTES), path)
        data = bytes(HEAD_BYTES) + file.read_at(replayed.end, file.size() - replayed.end)
    layout, last, end = replayed.layout, replayed.last_record, replayed.end
    rest = replace(head, first=last + 1)
    for frame in frames(data, rest, path, _has_no_body):
        layout = apply(layout, decode_edit(frame.descriptor, path), path)
        last, end = frame.number, start + frame.end
    return Replayed(layout, path, replayed.file_number, last, end)


def _has_no_body(frame: Frame) -> bool:
    return not len(frame.body)
