"""Names that are never used twice.

Every opening of a writer draws a random incarnation, and a counter numbers its uploads, retries
included. So two different contents never meet under one name, and a name that was collected never
comes back.
"""

from __future__ import annotations

import os
import socket

from stratalog.errors import Invalid
from stratalog.objectlog.stored.fragment import compacted_path, fragment_path, staged_path
from stratalog.objectlog.stored.snapshot import snapshot_path
from stratalog.runtime import Runtime
from stratalog.setsum import Setsum

INCARNATION_LENGTH = 12
LABEL_LENGTH_MAX = 200
NOTE_LENGTH_MAX = 1000
UPLOADS_PER_SHARE = 1_000_000

_LABEL_HINT = "Give the name of a service, or none for the host and the process."


def writer_label(writer: str | None) -> str:
    """The name of a writer for people: what was given, or the host and the process."""
    if writer is None:
        return f"{socket.gethostname()}-{os.getpid()}"
    label: object = writer
    if not isinstance(label, str) or not label.isprintable():
        raise Invalid("a writer's name is printable text", hint=_LABEL_HINT)
    if not 0 < len(label) <= LABEL_LENGTH_MAX:
        raise Invalid(f"a writer's name has 1 to {LABEL_LENGTH_MAX} characters", hint=_LABEL_HINT)
    return label


def check_note(note: object) -> str:
    """The note, if it is text that can be stored."""
    if not isinstance(note, str) or len(note) > NOTE_LENGTH_MAX:
        raise Invalid(f"a note is text of at most {NOTE_LENGTH_MAX} characters", hint="Shorten it.")
    try:
        note.encode()
    except UnicodeEncodeError:
        raise Invalid(
            "a note is text, and half of a character is none",
            hint='Decode bytes with errors="replace", not "surrogateescape".',
        ) from None
    return note


class UploadNames:
    """The source of names of one incarnation."""

    __slots__ = ("_uploads", "incarnation")

    def __init__(self, runtime: Runtime) -> None:
        self.incarnation = runtime.new_id(INCARNATION_LENGTH)
        self._uploads = 0

    @classmethod
    def of_share(cls, incarnation: str, share: int) -> UploadNames:
        """Names that another process may use under the same incarnation: those of one share.

        Shares are numbered from 1, and each is used once. 0 is that of the incarnation itself.
        """
        names = cls.__new__(cls)
        names.incarnation = incarnation
        names._uploads = share * UPLOADS_PER_SHARE
        return names

    def fragment(self, seq_no: int) -> str:
        return fragment_path(seq_no, self.incarnation, self._next())

    def compacted(self, first: int, last: int) -> str:
        return compacted_path(first, last, self.incarnation, self._next())

    def staged(self, seq_no: int) -> str:
        return staged_path(seq_no, self.incarnation, self._next())

    def snapshot(self, setsum: Setsum) -> str:
        return snapshot_path(setsum, self.incarnation, self._next())

    def _next(self) -> int:
        self._uploads += 1
        return self._uploads
