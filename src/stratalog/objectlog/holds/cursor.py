"""A cursor: a named position that holds back collection, one JSON object changed by CAS.

    path      cursor/{name}.json, name [A-Za-z0-9_]+
    fields    position, epoch_us, writer, then ours: write_id, deleted, held

``epoch_us`` is when it was written, for people. A cursor is a document: it moves only with a
witness of its previous version, and deleting writes a tombstone (``deleted``). A cursor that did
not hold its data before (new, moved back, merely loaded) is written first; then it is checked
whether a collection is about to take that data. A cursor that goes back keeps its old offset in
``held``, and goes on holding that if its way back turns out to be cut off. Persisted: keep stable.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import ClassVar

from stratalog.errors import Conflict, Invalid, Trimmed, Unavailable, Unknown
from stratalog.objectlog.holds.hold_names import name_in, path_of
from stratalog.objectlog.pickling import located, sendable
from stratalog.objectlog.stored import (
    GARBAGE_PATH,
    Garbage,
    LogPosition,
    Manifest,
    Natural,
    PlanState,
    StoredObject,
    check_begun,
    check_offset,
    decode_document,
    load_garbage,
    load_manifest,
    writer_label,
)
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Document, PatientStore, StoreLike, Version, open_store, read_versions

CURSOR_PREFIX = "cursor/"
CURSOR_TIMEOUT_S = 60.0


class StoredCursor(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    what: ClassVar[str] = "cursor"

    position: LogPosition
    epoch_us: Natural
    writer: str
    write_id: str | None = None
    deleted: bool = False
    held: Natural | None = None


decode_cursor = partial(decode_document, StoredCursor)


class Cursor:
    """One version of a cursor: what it says, and the witness needed to change it."""

    def __init__(
        self,
        cursors: CursorStore,
        name: str,
        version: Version[StoredCursor],
        *,
        counts: bool = False,
    ) -> None:
        self._cursors = cursors
        self._version = version
        self._name = name
        self._counts = counts

    @property
    def _stored(self) -> StoredCursor:
        return self._version.value

    @property
    def name(self) -> str:
        return self._name

    @property
    def position(self) -> LogPosition:
        return self._stored.position

    @property
    def offset(self) -> int:
        """The oldest offset that this cursor still needs."""
        return self._stored.position.offset

    def holds(self, first_offset: int) -> int | None:
        """What a log that begins at ``first_offset`` must keep for it. None if it never counted.

        A cursor that went back and finds its data gone still holds what it held before.
        """
        offsets = (self.offset, self._stored.held)
        return next((each for each in offsets if each and each >= first_offset), None)

    @property
    def epoch_us(self) -> int:
        """When this version was written."""
        return self._stored.epoch_us

    @property
    def writer(self) -> str:
        return self._stored.writer

    async def move(self, offset: int) -> Cursor:
        """The cursor at another offset. ``Conflict`` if somebody changed it since it was loaded;
        ``Invalid`` beyond the tail."""
        return await self._cursors._replace(self, offset, deleted=False)

    async def delete(self) -> None:
        """Remove the cursor. ``Conflict`` if somebody changed it since it was loaded."""
        await self._cursors._replace(self, self.offset, deleted=True)

    def __repr__(self) -> str:
        return f"Cursor({self.name!r}, offset={self.offset})"


class CursorStore:
    """The cursors of one log."""

    def __init__(
        self, url: StoreLike, *, writer: str | None = None, runtime: Runtime = DEFAULT_RUNTIME
    ) -> None:
        self._store = PatientStore(open_store(url), runtime, CURSOR_TIMEOUT_S)
        self._writer = writer_label(writer)
        self._runtime = runtime
        self._url = located(url)

    def __reduce__(self) -> tuple[object, ...]:
        again = partial(CursorStore, writer=self._writer, runtime=self._runtime)
        return again, (sendable(self._url),)

    async def create(self, name: str, offset: int) -> Cursor:
        """A new cursor. ``Exists`` if there is one; ``Trimmed`` if its data is already gone;
        ``Invalid`` beyond the tail."""
        document = self._document(name)
        await self._check_offset(offset)
        version = await document.create(partial(self._next, offset))
        return await self._confirmed(Cursor(self, name, version), None)

    async def load(self, name: str) -> Cursor:
        """The cursor as it is now. ``NotFound`` if there is none."""
        return Cursor(self, name, await self._document(name).load())

    async def list(self) -> list[Cursor]:
        """All cursors, by name."""
        found = await read_versions(
            self._store, CURSOR_PREFIX, decode_cursor, partial(name_in, CURSOR_PREFIX)
        )
        return [Cursor(self, *each) for each in found if not each[1].value.deleted]

    async def _replace(self, cursor: Cursor, offset: int, *, deleted: bool) -> Cursor:
        if not deleted:
            await self._check_offset(offset)
            if offset < cursor.offset and not cursor._counts:
                cursor = await self._counting(cursor)
        held = None if deleted else _still_held(cursor, offset)
        moved = await self._put(cursor, offset, deleted=deleted, held=held)
        if deleted or (cursor._counts and cursor.offset <= offset):
            return moved
        return await self._confirmed(moved, cursor)

    async def _put(self, cursor: Cursor, offset: int, *, deleted: bool, held: int | None) -> Cursor:
        stored = self._next(offset, cursor._stored, deleted=deleted, held=held)
        version = await self._document(cursor.name).put(cursor._version, stored)
        return Cursor(self, cursor.name, version, counts=True)

    def _next(
        self,
        offset: int,
        before: StoredCursor | None,
        *,
        deleted: bool = False,
        held: int | None = None,
    ) -> StoredCursor:
        return StoredCursor(
            position=LogPosition(offset),
            epoch_us=self._runtime.now_us(),
            writer=self._writer,
            deleted=deleted,
            held=held,
            unknown=before.unknown if before else None,
        )

    def _document(self, name: str) -> Document[StoredCursor]:
        return Document(
            self._store,
            cursor_path(name),
            decode_cursor,
            label=f"cursor {name!r}",
            runtime=self._runtime,
            timeout_s=CURSOR_TIMEOUT_S,
            is_tombstone=lambda stored: stored.deleted,
        )

    async def _confirmed(self, cursor: Cursor, before: Cursor | None) -> Cursor:
        """A cursor that was just written, if it counts; otherwise it is put back as it was."""
        try:
            return await self._counting(cursor)
        except (Trimmed, Conflict):
            offset = before.offset if before else cursor.offset
            held = before._stored.held if before else None
            with contextlib.suppress(Conflict, Unknown, Unavailable):
                await self._put(cursor, offset, deleted=before is None, held=held)
            raise

    async def _counting(self, cursor: Cursor) -> Cursor:
        """A cursor that did not hold its data counts only if no collector is about to take that.

        It is written already. So a collector that has not listed the cursors yet will see it. One
        that has listed them shows by its plan, which is read first, or by the manifest.
        """
        plan, _ = await load_garbage(self._store)
        manifest, _ = await load_manifest(self._store)
        _check_counts(cursor.offset, plan, manifest)
        return Cursor(self, cursor.name, cursor._version, counts=True)

    async def _check_offset(self, offset: int) -> None:
        check_offset(offset)
        manifest, _ = await load_manifest(self._store)
        manifest.check_writable()
        check_begun(manifest, offset)
        _check_reached(manifest, offset)


def _check_reached(manifest: Manifest, offset: int) -> None:
    """Refuse an offset beyond the tail: a cursor there shows that an older manifest was put back,
    and stops the collection and the sweep (``collection.older_manifest``)."""
    tail = manifest.tail.offset
    if offset > tail:
        raise Invalid(
            f"the log ends at {tail}, and a cursor does not lie beyond: {offset}",
            hint=f"Give an offset up to {tail}; there it holds all that is appended from now on.",
            expected=tail,
            actual=offset,
        )


def _still_held(cursor: Cursor, offset: int) -> int | None:
    """What the cursor goes on holding, higher up, until its move to ``offset`` is confirmed."""
    before = cursor.offset if cursor._counts else max(cursor.offset, cursor._stored.held or 0)
    return before if before > offset else None


def _check_counts(offset: int, plan: Garbage | None, manifest: Manifest) -> None:
    """Refuse a cursor that was written at ``offset`` if it does not count."""
    check_begun(manifest, offset)
    if plan is None or plan.first_to_keep.offset <= offset:
        return
    if plan.state(manifest) in (PlanState.EMPTY, PlanState.DEAD):
        return
    raise Conflict(
        f"a collection up to {plan.first_to_keep.offset} is under way",
        path=GARBAGE_PATH,
        hint="Try again when it has ended, or choose a higher offset.",
        expected=plan.first_to_keep.offset,
        actual=offset,
    )


def cursor_path(name: str) -> str:
    """Where a cursor is stored. ``Invalid`` for a name that is not one."""
    return path_of(CURSOR_PREFIX, name, "cursor")
