"""A cursor: a named position that holds back collection, one JSON object changed by CAS.

    path      cursor/{name}.json, name [A-Za-z0-9_]+
    fields    position, epoch_us, writer, then ours: write_id, deleted, held

``epoch_us`` is when it was written, for people. A cursor moves only with a witness of its previous
version. One that did not hold its data before (new, moved back, merely loaded) is written first and
then looks whether a collection is about to take that data. One that goes back writes down in
``held`` where it was, and goes on holding that if its way back turns out to be cut off. Deleting
writes a tombstone (``deleted``), because a conditional delete does not exist everywhere; creating
it again replaces the tombstone. Persisted: keep stable.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import ClassVar

from stratalog.errors import (
    Conflict,
    Exists,
    Invalid,
    NotFound,
    StratalogError,
    Trimmed,
    Unavailable,
    Unknown,
)
from stratalog.objectlog.pickling import located, sendable
from stratalog.objectlog.stored import (
    GARBAGE_PATH,
    Garbage,
    LogPosition,
    Manifest,
    Natural,
    PlanState,
    StoredObject,
    check_offset,
    load_garbage,
    load_manifest,
    writer_label,
)
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import (
    Blob,
    Landed,
    Patience,
    PatientStore,
    StoreLike,
    create,
    open_store,
    swap,
)

CURSOR_PREFIX = "cursor/"
CURSOR_SUFFIX = ".json"
CURSOR_TIMEOUT_S = 60.0
READS_AT_ONCE = 16
_NAME = re.compile(r"[A-Za-z0-9_]+")
_NAME_LENGTH_MAX = 200


class StoredCursor(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The stored object."""

    what: ClassVar[str] = "cursor"

    position: LogPosition
    epoch_us: Natural
    writer: str
    write_id: str | None = None
    deleted: bool = False
    held: Natural | None = None


class Cursor:
    """One version of a cursor: what it says, and the witness needed to change it."""

    def __init__(
        self,
        cursors: CursorStore,
        name: str,
        stored: StoredCursor,
        etag: str,
        *,
        counts: bool = False,
    ) -> None:
        self._cursors = cursors
        self._stored = stored
        self._etag = etag
        self._name = name
        self._counts = counts

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
        """The cursor at another offset. ``Conflict`` if somebody changed it since it was loaded."""
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
        return _open_cursors, (sendable(self._url), self._writer, self._runtime)

    async def create(self, name: str, offset: int) -> Cursor:
        """A new cursor. ``Exists`` if there is one; ``Trimmed`` if its data is already gone."""
        path = cursor_path(name)
        await self._check_offset(offset)
        stored = self._next_version(None, offset)
        patience = Patience(self._runtime, CURSOR_TIMEOUT_S)
        try:
            etag = await create(self._store, path, stored.to_json(), patience)
        except Exists:
            grave, witness = await self._read(path)
            if not grave.deleted:
                raise Exists(f"there is already a cursor {name!r}", path=path) from None
            stored = self._next_version(grave, offset)
            etag = await self._swap(path, stored, witness, name)
        return await self._confirmed(Cursor(self, name, stored, etag), None)

    async def load(self, name: str) -> Cursor:
        """The cursor as it is now. ``NotFound`` if there is none."""
        path = cursor_path(name)
        stored, etag = await self._read(path)
        if stored.deleted:
            raise _no_cursor(name, path)
        return Cursor(self, name, stored, etag)

    async def list(self) -> list[Cursor]:
        """All cursors, by name."""
        names = [
            name
            async for row in self._store.list(CURSOR_PREFIX)
            if legal_name(name := cursor_name(row.path)) and row.path == cursor_path(name)
        ]
        found: list[Cursor] = []
        for start in range(0, len(names), READS_AT_ONCE):
            some = names[start : start + READS_AT_ONCE]
            read = await asyncio.gather(*(self._read(cursor_path(name)) for name in some))
            found += [
                Cursor(self, name, stored, etag)
                for name, (stored, etag) in zip(some, read, strict=True)
                if not stored.deleted
            ]
        return found

    async def _replace(self, cursor: Cursor, offset: int, *, deleted: bool) -> Cursor:
        if not deleted:
            await self._check_offset(offset)
            if offset < cursor.offset and not cursor._counts:
                cursor = await self._counting(cursor)
        path = cursor_path(cursor.name)
        held = None if deleted else _still_held(cursor, offset)
        stored = self._next_version(cursor._stored, offset, deleted=deleted, held=held)
        etag = await self._swap(path, stored, cursor._etag, cursor.name)
        moved = Cursor(self, cursor.name, stored, etag, counts=True)
        if deleted or (cursor._counts and cursor.offset <= offset):
            return moved
        return await self._confirmed(moved, cursor)

    def _next_version(
        self,
        before: StoredCursor | None,
        offset: int,
        *,
        deleted: bool = False,
        held: int | None = None,
    ) -> StoredCursor:
        return StoredCursor(
            position=LogPosition(offset),
            epoch_us=self._runtime.now_us(),
            writer=self._writer,
            write_id=self._runtime.new_id(),
            deleted=deleted,
            held=held,
            unknown=before.unknown if before else None,
        )

    async def _swap(self, path: str, stored: StoredCursor, witness: str, name: str) -> str:
        def is_ours(blob: Blob) -> bool:
            return StoredCursor.from_json(blob.data, path).write_id == stored.write_id

        settled = await swap(
            self._store,
            path,
            stored.to_json(),
            witness,
            is_ours,
            Patience(self._runtime, CURSOR_TIMEOUT_S),
        )
        if isinstance(settled, Landed):
            return settled.etag
        if not settled.answered:
            raise Unknown(f"the cursor {name!r} was changed by others meanwhile", path=path)
        raise Conflict(
            f"the cursor {name!r} was changed since it was loaded",
            path=path,
            hint="Load it again, then decide.",
        )

    async def _confirmed(self, cursor: Cursor, before: Cursor | None) -> Cursor:
        """A cursor that was just written, if it counts; otherwise it is put back as it was."""
        try:
            return await self._counting(cursor)
        except (Trimmed, Conflict):
            restored = self._next_version(
                cursor._stored,
                before.offset if before else cursor.offset,
                deleted=before is None,
                held=before._stored.held if before else None,
            )
            with contextlib.suppress(Conflict, Unknown, Unavailable):
                await self._swap(cursor_path(cursor.name), restored, cursor._etag, cursor.name)
            raise

    async def _counting(self, cursor: Cursor) -> Cursor:
        """A cursor that did not hold its data so far counts only if nobody is about to take it.

        It is written already. So a collector that has not listed the cursors yet will see it, and
        one that has shows itself by its plan, which is read first, or by the manifest.
        """
        plan, _ = await load_garbage(self._store)
        manifest, _ = await load_manifest(self._store)
        refusal = _refusal(cursor.offset, plan, manifest)
        if refusal is not None:
            raise refusal
        return Cursor(self, cursor.name, cursor._stored, cursor._etag, counts=True)

    async def _check_offset(self, offset: int) -> None:
        check_offset(offset)
        manifest, _ = await load_manifest(self._store)
        manifest.check_writable()
        if offset < manifest.first_offset:
            raise _trimmed(manifest)

    async def _read(self, path: str) -> tuple[StoredCursor, str]:
        try:
            blob = await self._store.get(path)
        except NotFound:
            raise _no_cursor(cursor_name(path), path) from None
        return StoredCursor.from_json(blob.data, path), blob.etag


def _still_held(cursor: Cursor, offset: int) -> int | None:
    """What the cursor goes on holding, higher up, until its move to ``offset`` is confirmed."""
    before = cursor.offset if cursor._counts else max(cursor.offset, cursor._stored.held or 0)
    return before if before > offset else None


def _refusal(offset: int, plan: Garbage | None, manifest: Manifest) -> StratalogError | None:
    """Why a cursor that was written at ``offset`` does not count, or None if it does."""
    if manifest.first_offset > offset:
        return _trimmed(manifest)
    if plan is None or plan.first_to_keep.offset <= offset:
        return None
    if plan.state(manifest) in (PlanState.EMPTY, PlanState.DEAD):
        return None
    return Conflict(
        f"a collection up to {plan.first_to_keep.offset} is under way",
        path=GARBAGE_PATH,
        hint="Try again when it has ended, or choose a higher offset.",
        expected=plan.first_to_keep.offset,
        actual=offset,
    )


def _trimmed(manifest: Manifest) -> Trimmed:
    first_offset = manifest.first_offset
    return Trimmed(f"the log starts at {first_offset}", first_offset=first_offset)


def _open_cursors(url: StoreLike, writer: str, runtime: Runtime) -> CursorStore:
    return CursorStore(url, writer=writer, runtime=runtime)


def cursor_path(name: str) -> str:
    """Where a cursor is stored. ``Invalid`` for a name that is not one."""
    if not legal_name(name):
        raise Invalid(
            f"not a cursor name: {name!r}",
            hint=f"Use letters, digits and underscores, at most {_NAME_LENGTH_MAX}.",
        )
    return f"{CURSOR_PREFIX}{name}{CURSOR_SUFFIX}"


def legal_name(name: object) -> bool:
    """Whether this may be the name of a cursor or of a pin."""
    if not isinstance(name, str) or len(name) > _NAME_LENGTH_MAX:
        return False
    return _NAME.fullmatch(name) is not None


def cursor_name(path: str) -> str:
    return path.removeprefix(CURSOR_PREFIX).removesuffix(CURSOR_SUFFIX)


def _no_cursor(name: str, path: str) -> NotFound:
    return NotFound(f"there is no cursor {name!r}", path=path)
