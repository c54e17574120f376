"""Which data the cursors of a log are certain to hold, from what was stored and what was answered.

A cursor counts from the moment when the call that wrote it returns. From then on its offset is
held, until another version is stored:

    moved forth      its new offset is held at once, since whoever lists it sees one or the other
    moved back       its old offset is still held; the new one when that call returns
    deleted          nothing is held

A call that fails, or never returns, leaves either position possible, and so the higher one held.
"""

from __future__ import annotations

from simulation.promises import promise
from stratalog.objectlog.holds.cursor import Cursor, StoredCursor, cursor_path, decode_cursor


class HeldCursors:
    """The stored version of each cursor, and the offset that it holds."""

    def __init__(self) -> None:
        self._stored: dict[str, StoredCursor] = {}
        self._held: dict[str, int] = {}

    def landed(self, path: str, data: bytes) -> None:
        """A version was stored."""
        cursor = decode_cursor(data, path)
        self._stored[path] = cursor
        if cursor.deleted:
            self._held.pop(path, None)
        elif path in self._held:
            self._held[path] = max(self._held[path], cursor.position.offset)

    def acknowledged(self, cursor: Cursor, first_offset: int) -> None:
        """A call gave this cursor to its caller."""
        path = cursor_path(cursor.name)
        if self._stored[path].write_id == cursor._stored.write_id:
            self._held[path] = cursor.offset
            self.check(first_offset)

    def check(self, first_offset: int) -> None:
        """Nothing that is held has gone."""
        for path, offset in self._held.items():
            promise(
                offset >= first_offset,
                "held",
                f"{path} holds {offset} and the log begins at {first_offset}",
            )
