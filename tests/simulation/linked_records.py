"""Every record that was ever linked, known apart from the log: what a manifest is held against.

When a manifest first links a fragment, its rows are read from the stored object and hashed here,
so that no sum of the library vouches for itself. From then on the place of each record is known
for good, also after it was collected.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from simulation.promises import PromiseBroken, promise
from stratalog.objectlog.fragment import Fragment, is_relative
from stratalog.objectlog.manifest import Manifest
from stratalog.objectlog.position import FIRST_OFFSET
from stratalog.objectlog.snapshot import Entry, Snapshot, in_base
from stratalog.setsum import EMPTY, Setsum
from stratalog.testing import Row


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
    """The records of one log by their place, and the sum of all before each fragment."""

    def __init__(self, objects: Objects, log: str = "", first_offset: int = FIRST_OFFSET) -> None:
        self._objects = objects
        self._log = log
        self._paths: list[str] = []
        self._places: dict[str, int] = {}
        self._rows: list[Row] = []
        self._sums = {first_offset: EMPTY}
        self.first_offset = first_offset

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
        known = [fragment.path for fragment in fragments if fragment.start.offset < tail]
        first = self._places.get(known[0], 0) if known else len(self._paths)
        promise(self._paths[first:] == known, "records", "the records that are kept changed")
        for fragment in fragments[len(known) :]:
            self._note(fragment)
        self._check_sums(manifest)

    def _note(self, fragment: Fragment) -> None:
        start, limit = fragment.start.offset, fragment.limit.offset
        tail = self.tail
        promise(start == tail, "records", f"{fragment.path} starts at {start}, not at {tail}")
        key = self._objects.key(self._log, fragment)
        data = self._objects.get(key)
        if data is None:
            raise PromiseBroken("linked", f"{key} is not stored")
        rows = read_rows(data)
        offsets = [offset for offset, _, _ in rows]
        first = 0 if is_relative(fragment.path) else start
        wanted = list(range(first, first + limit - start))
        promise(offsets == wanted, "records", f"{fragment.path} has {offsets}")
        items = [struct.pack(">QQ", offset, at_us) + body for offset, at_us, body in rows]
        if is_relative(fragment.path):
            at_us = fragment.start.timestamp_us
            rows = [(start + offset, at_us, body) for offset, _, body in rows]
        self._sums[limit] = self._sums[start] + Setsum.of(*items)
        self._places[fragment.path] = len(self._paths)
        self._paths.append(fragment.path)
        self._rows.extend(rows)

    def _check_sums(self, manifest: Manifest) -> None:
        first, tail = manifest.first_offset, manifest.tail.offset
        collected = EMPTY if manifest.collected is msgspec.UNSET else manifest.collected
        promise(
            collected == self._sums.get(first),
            "collected",
            f"it is not the sum of the records before {first}",
        )
        promise(
            manifest.setsum == self._sums.get(tail),
            "collected",
            f"the setsum is not that of all the records before {tail}",
        )
        begins = manifest.initial_offset.offset if manifest.initial_offset else FIRST_OFFSET
        promise(begins == first, "collected", f"the log begins at {first}, not at {begins}")


def read_rows(data: bytes) -> list[Row]:
    """The rows of a stored fragment."""
    table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
