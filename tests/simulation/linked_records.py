"""Every record that was ever linked, known apart from the log: what a manifest is held against.

When a manifest first links a fragment, its rows are read from the stored object and hashed here,
so that no sum of the library vouches for itself. From then on the place of each record is known
for good, also after it was collected.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from simulation.promises import PromiseBroken, promise
from stratalog.indexset import IndexSet
from stratalog.objectlog.stored.fragment import Fragment, is_relative
from stratalog.objectlog.stored.manifest import Manifest
from stratalog.objectlog.stored.position import FIRST_OFFSET
from stratalog.objectlog.stored.snapshot import Entry, Snapshot, in_base
from stratalog.setsum import EMPTY, Setsum
from stratalog.testing import Row

OBJECTS_REMEMBERED = 1000


class Objects:
    """The objects of a store by their keys, and which of them an entry of a log means."""

    def __init__(self, objects: Mapping[str, bytes], url: str) -> None:
        self._top = url + "/"
        self.get = objects.get

    def owner(self, url: str) -> str:
        """The name of the log at this place."""
        return url.removeprefix(self._top)

    def key(self, log: str, entry: Entry) -> str:
        """Where the object of an entry lies that a log has, or that its base has."""
        owner = log if entry.base is None else self.owner(entry.base)
        return f"{owner}/{entry.path}" if owner else entry.path


class StoredTree:
    """What lies below each entry. A node never changes, so it is read once."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._entries: dict[tuple[str, str | None], tuple[Entry, ...]] = {}

    def below(self, entry: Entry, log: str) -> tuple[Entry, ...]:
        """The entry itself and all below it, oldest fragment first."""
        if isinstance(entry, Fragment):
            return (entry,)
        key = self._objects.key(log, entry)
        known = self._entries.get((key, entry.base))
        if known is None:
            data = self._objects.get(key)
            if data is None:
                raise PromiseBroken("linked", f"{key} is not stored")
            node = Snapshot.from_json(data, entry.path)
            node.check(entry)
            promise(len(node.entries) > 1, "linked", f"{key} has a single child")
            children = [in_base(child, entry.base) for child in node.entries]
            known = (entry, *(each for child in children for each in self.below(child, log)))
            self._entries[key, entry.base] = known
        return known


class LinkedRecords:
    """The records of one log by their place, whether they are still there or not."""

    def __init__(self, objects: Objects, log: str = "", first_offset: int = FIRST_OFFSET) -> None:
        self._objects = objects
        self._log = log
        self._known: list[tuple[str, int, int]] = []
        self._rows: list[Row] = []
        self._items: list[Setsum] = []
        self._gone: set[int] = set()
        self._collected = self._total = EMPTY
        self.first_offset = first_offset
        self.dead: set[int] = set()
        """What the owner of the state has given up. Only this may be compacted."""

        self.blanks: set[int] = set()
        """Offsets that never had a record: an eraser has stepped over them."""

        self._erased: set[Row] = set()

    @property
    def tail(self) -> int:
        return self.first_offset + len(self._rows)

    def before(self, offset: int) -> Sequence[Row]:
        """The records before an offset, collected or not."""
        return self._rows[: offset - self.first_offset]

    def between(self, first: int, limit: int) -> Sequence[Row]:
        """The records of a stretch, collected or not."""
        return self._rows[first - self.first_offset : limit - self.first_offset]

    def check(self, manifest: Manifest, fragments: Sequence[Fragment]) -> None:
        """Hold a manifest with these fragments against all that was linked before, then note it."""
        tail = self.tail
        known = [fragment for fragment in fragments if fragment.start.offset < tail]
        if [_place(fragment) for fragment in known] != self._known:
            self._check_known(manifest.first_offset, known)
        for fragment in fragments[len(known) :]:
            self._note(fragment)
        self._known = [_place(fragment) for fragment in fragments]
        self._check_sums(manifest)

    def _check_known(self, first_offset: int, fragments: Sequence[Fragment]) -> None:
        """Every record is where it was; or it was collected, or given up and then compacted."""
        there: set[int] = set()
        for fragment in fragments:
            for row in self._stored(fragment)[0]:
                offset = row[0]
                is_same = self.between(offset, offset + 1) == [row]
                promise(is_same and offset not in there, "records", f"{offset} became another one")
                there.add(offset)
        gone = set(range(self.first_offset, self.tail)) - there
        promise(self._gone <= gone, "records", "records came back")
        for offset in gone - self._gone:
            may_go = offset < first_offset or offset in self.dead
            promise(may_go, "records", f"the records that are kept changed: {offset} is gone")
            self._collected += self._items[offset - self.first_offset]
        self._gone = gone

    def _note(self, fragment: Fragment) -> None:
        start, limit = fragment.start.offset, fragment.limit.offset
        tail = self.tail
        promise(start == tail, "records", f"{fragment.path} starts at {start}, not at {tail}")
        rows, items = self._stored(fragment)
        if fragment.is_sparse:
            promise((limit, rows) == (start + 1, []), "records", f"{fragment.path} is no blank")
            rows, items = [(start, fragment.start.timestamp_us, b"blank %d" % start)], [EMPTY]
            self.blanks.add(start)
            self.dead.add(start)
            self._gone.add(start)
        offsets = [offset for offset, _, _ in rows]
        promise(offsets == [*range(start, limit)], "records", f"{fragment.path} has {offsets}")
        self._rows.extend(rows)
        self._items.extend(items)
        self._total += Setsum.total(items)

    def erase(self, offsets: IndexSet) -> None:
        """A certificate says that nothing of these records is stored anywhere."""
        self._erased.update(row for row in self._rows if row[0] in offsets)

    def check_erased(self, key: str, data: bytes) -> None:
        """Hold a stored fragment against what was erased."""
        found = self._erased.intersection(read_rows(data)) if self._erased else ()
        promise(not found, "erased", f"{key} has {found}")

    def _stored(self, fragment: Fragment) -> tuple[list[Row], list[Setsum]]:
        """The rows of a fragment as they are stored, and the sum of each."""
        key = self._objects.key(self._log, fragment)
        data = self._objects.get(key)
        if data is None:
            raise PromiseBroken("linked", f"{key} is not stored")
        rows, items = [*read_rows(data)], [*items_of(data)]
        if is_relative(fragment.path):
            start, at_us = fragment.start.offset, fragment.start.timestamp_us
            rows = [(start + offset, at_us, body) for offset, _, body in rows]
        return rows, items

    def _check_sums(self, manifest: Manifest) -> None:
        first, tail = manifest.first_offset, manifest.tail.offset
        collected = EMPTY if manifest.collected is msgspec.UNSET else manifest.collected
        promise(
            collected == self._collected,
            "collected",
            f"it is not the sum of the records that are gone, all before {first} among them",
        )
        promise(
            manifest.setsum == self._total,
            "collected",
            f"the setsum is not that of all the records before {tail}",
        )
        begins = manifest.initial_offset.offset if manifest.initial_offset else FIRST_OFFSET
        promise(begins == first, "collected", f"the log begins at {first}, not at {begins}")


def _place(fragment: Fragment) -> tuple[str, int, int]:
    return (fragment.path, fragment.start.offset, fragment.limit.offset)


# The same bytes are asked for whenever the fragments of a log change, so both are worked out once.


@lru_cache(OBJECTS_REMEMBERED)
def read_rows(data: bytes) -> tuple[Row, ...]:
    """The rows of a stored fragment."""
    table = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).read(use_threads=False)
    return tuple(zip(*(column.to_pylist() for column in table.columns[:3]), strict=True))


@lru_cache(OBJECTS_REMEMBERED)
def items_of(data: bytes) -> tuple[Setsum, ...]:
    """The sum of each row, as it is stored."""
    return tuple(
        Setsum.of(struct.pack(">QQ", at, at_us) + body) for at, at_us, body in read_rows(data)
    )
