"""Units: what is linked together, and how records are divided into fragments.

A unit is linked whole: usually one fragment with many submissions, or one large `append_many` over
several fragments.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from stratalog.errors import StratalogError
from stratalog.invariants import invariant
from stratalog.objectlog.append.accumulator import Submission
from stratalog.objectlog.append.committer import Upload
from stratalog.objectlog.options import RECORD_OVERHEAD_BYTES
from stratalog.objectlog.stored import EncodedFragment, Fragment, LogPosition

Half = Literal["first", "second"]


@dataclass(slots=True, eq=False)
class Draft:
    """One fragment to be: its records and the position they hope for."""

    bodies: Sequence[bytes]
    size: int
    first_offset: int
    seq_no: int
    put_s: float = 0.0
    encoded: EncodedFragment | None = None
    upload: Upload | None = None

    def stored(self, path: str, encoded: EncodedFragment, timestamp_us: int) -> Fragment:
        """The entry that links it, once it is stored under ``path``."""
        entry = Fragment(
            path=path,
            seq_no=self.seq_no,
            start=LogPosition(self.first_offset, timestamp_us),
            limit=LogPosition(self.first_offset + len(self.bodies), timestamp_us),
            num_bytes=len(encoded.data),
            setsum=encoded.setsum,
        )
        return entry.linking(path, encoded)


@dataclass(slots=True, eq=False)
class Unit:
    """Drafts that are linked together, and the submissions whose records they hold.

    Of callers that move in step, the ``first`` half leaves the others waiting until it is uploaded.
    Each unit after it, as long as there are two halves, is a ``second`` half.
    """

    submissions: list[Submission]
    drafts: list[Draft]
    timestamp_us: int
    half: Half | None = None
    ready: bool = False
    error: StratalogError | None = None
    task: asyncio.Task[None] | None = None

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


class UnitsUnderWay:
    """The units of one writer that are uploaded or linked, in the order of their offsets."""

    def __init__(self) -> None:
        self._units: deque[Unit] = deque()
        self.linking: list[Unit] = []
        """The first of them, for which a manifest is being put."""

    def __len__(self) -> int:
        return len(self._units)

    @property
    def first(self) -> Unit | None:
        return self._units[0] if self._units else None

    @property
    def last(self) -> Unit | None:
        return self._units[-1] if self._units else None

    @property
    def fragments(self) -> int:
        return sum(len(unit.drafts) for unit in self._units)

    @property
    def submissions(self) -> int:
        return sum(len(unit.submissions) for unit in self._units)

    @property
    def unlinked(self) -> int:
        """How many of them no manifest is being put for."""
        return len(self._units) - len(self.linking)

    def add(self, unit: Unit) -> None:
        self._units.append(unit)

    def ready(self, fragments_max: int) -> list[Unit]:
        """The first ones that are ready to be linked, as many as one manifest may link."""
        group: list[Unit] = []
        fragments = 0
        for unit in self._units:
            fragments += len(unit.drafts)
            if not unit.ready or (group and fragments > fragments_max):
                break
            group.append(unit)
        return group

    def take(self, group: Iterable[Unit]) -> list[Submission]:
        """Remove units from the front; gives their submissions."""
        submissions: list[Submission] = []
        for unit in group:
            invariant(self._units.popleft() is unit, "units settle in order")
            submissions.extend(unit.submissions)
        return submissions

    def take_linking(self) -> list[Submission]:
        return self.take([unit for unit in self.linking if unit in self._units])

    def take_all(self) -> list[Unit]:
        units, self._units = self._units, deque()
        return list(units)


def fragments_for(size: int, fragment_bytes: int) -> int:
    """How many fragments so many bytes fill. A rest below a quarter of one joins the last."""
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
