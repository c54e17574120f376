"""Units: what is linked together, and how records are divided into fragments.

A unit is linked whole: usually one fragment with many submissions, or one large `append_many` over
several fragments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from stratalog.errors import StratalogError
from stratalog.objectlog.append.accumulator import Submission
from stratalog.objectlog.append.committer import Upload
from stratalog.objectlog.options import RECORD_OVERHEAD_BYTES
from stratalog.objectlog.stored import EncodedFragment, Fragment, LogPosition

Half = Literal["first", "second"]


class Draft:
    """One fragment to be: its records and the position they hope for."""

    __slots__ = ("bodies", "encoded", "first_offset", "put_s", "seq_no", "size", "upload")

    def __init__(self, bodies: Sequence[bytes], size: int, first_offset: int, seq_no: int) -> None:
        self.bodies = bodies
        self.size = size
        self.first_offset = first_offset
        self.seq_no = seq_no
        self.put_s = 0.0
        self.encoded: EncodedFragment | None = None
        self.upload: Upload | None = None

    def stored(self, path: str, encoded: EncodedFragment, timestamp_us: int) -> Fragment:
        """The entry that links it, once it is stored under ``path``."""
        return Fragment(
            path=path,
            seq_no=self.seq_no,
            start=LogPosition(self.first_offset, timestamp_us),
            limit=LogPosition(self.first_offset + len(self.bodies), timestamp_us),
            num_bytes=len(encoded.data),
            setsum=encoded.setsum,
        )


class Unit:
    """Drafts that are linked together, and the submissions whose records they hold.

    The ``first`` half of those who move in step has left the others waiting until it is uploaded.
    Each one after it, as long as there are two, is a ``second`` half.
    """

    __slots__ = ("drafts", "error", "half", "ready", "submissions", "task", "timestamp_us")

    def __init__(
        self,
        submissions: list[Submission],
        drafts: list[Draft],
        timestamp_us: int,
        half: Half | None = None,
    ) -> None:
        self.submissions = submissions
        self.drafts = drafts
        self.timestamp_us = timestamp_us
        self.half = half
        self.ready = False
        self.error: StratalogError | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        return sum(draft.size for draft in self.drafts)

    @property
    def put_s(self) -> float:
        """How long the store took for the slowest of the drafts."""
        return max(draft.put_s for draft in self.drafts)

    @property
    def uploads(self) -> list[Upload]:
        return [draft.upload for draft in self.drafts if draft.upload is not None]


def fragments_for(size: int, fragment_bytes: int) -> int:
    """How many fragments so many bytes fill. What is less than a quarter of one goes along."""
    return max(1, -(-(size - fragment_bytes // 4) // fragment_bytes))


def divide(bodies: list[bytes], size: int, count: int) -> list[tuple[list[bytes], int]]:
    """At most ``count`` parts of about the same size, each with its size."""
    if count <= 1 or len(bodies) == 1:
        return [(bodies, size)]
    limit = -(-size // count)
    parts: list[tuple[list[bytes], int]] = []
    part: list[bytes] = []
    part_size = 0
    for body in bodies:
        part.append(body)
        part_size += len(body) + RECORD_OVERHEAD_BYTES
        if part_size >= limit:
            parts.append((part, part_size))
            part, part_size = [], 0
    if part:
        parts.append((part, part_size))
    return parts
