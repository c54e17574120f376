"""Logs as Chroma's wal3 writes them: its JSON byte for byte, its names, its Parquet.

A shape is that of ``trees``, and may have nodes with a single child, as wal3's collector leaves
them. Such a node over a snapshot has that snapshot's sum, so it has its name, and wal3 finds its
object there already: what is stored is the child, and the pointer is deeper than it.
"""

from __future__ import annotations

import io
import json
import uuid
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import stratalog as sl
from objectlog.trees import LEAF, Shape
from stratalog.objectlog.stored.record_sums import sum_of_records
from stratalog.setsum import Setsum
from stratalog.testing import Row

ZEROS = "0" * 64
FIRST_US = 1_700_000_000_000_000


@dataclass
class Wal3Log:
    """A log, ready to be stored. ``by_uuid`` is the newer variant, with relative offsets."""

    shape: Shape
    records: int = 2
    first_offset: int = 1
    first_seq_no: int = 1
    by_uuid: bool = False
    with_collected: bool = True
    rows: list[Row] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    manifest: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self._offset, self._seq_no = self.first_offset, self.first_seq_no
        first_name: int | str = self.first_seq_no
        entries = [self._entry(child) for child in self.shape]
        collected = Setsum.of(b"collected") if self.first_offset > 1 else Setsum()
        if not self.with_collected:
            collected = Setsum()
        sums = [Setsum.from_hexdigest(entry["setsum"]) for entry in entries]
        self.manifest = {
            "setsum": Setsum.total([collected, *sums]).hexdigest(),
            "collected": collected.hexdigest(),
            "acc_bytes": sum(entry["num_bytes"] for entry in entries),
            "writer": "log writer",
            "snapshots": [entry for entry in entries if "depth" in entry],
            "fragments": [entry for entry in entries if "depth" not in entry],
        }
        if not self.with_collected:
            del self.manifest["collected"]
        if self.first_offset > 1:
            if self.by_uuid:
                first_name = str(uuid.UUID(int=self.first_seq_no))
            self.manifest["initial_offset"] = {"offset": self.first_offset}
            self.manifest["initial_seq_no"] = first_name
        self.objects["manifest/MANIFEST"] = compact(self.manifest)

    @property
    def limit(self) -> int:
        return self._offset

    async def store(self, url: sl.Store) -> sl.Store:
        """Put everything, the manifest last."""
        for path, data in self.objects.items():
            await url.put_if_absent(path, data)
        return url

    def _entry(self, shape: Shape) -> dict[str, Any]:
        if shape == LEAF:
            return self._fragment()
        children = [self._entry(child) for child in shape]
        total = Setsum.total(Setsum.from_hexdigest(child["setsum"]) for child in children)
        depth = 1 + max(child.get("depth", 0) for child in children)
        path = f"snapshot/SNAPSHOT.{total.hexdigest()}"
        node = {
            "path": path,
            "depth": depth,
            "setsum": total.hexdigest(),
            "writer": "log writer",
            "snapshots": [child for child in children if "depth" in child],
            "fragments": [child for child in children if "depth" not in child],
        }
        self.objects.setdefault(path, compact(node))
        return {
            "setsum": total.hexdigest(),
            "path_to_snapshot": path,
            "depth": depth,
            "start": children[0]["start"],
            "limit": children[-1]["limit"],
            "num_bytes": sum(child["num_bytes"] for child in children),
        }

    def _fragment(self) -> dict[str, Any]:
        first, seq_no = self._offset, self._seq_no
        self._offset += self.records
        self._seq_no += 1
        offsets = np.arange(first, self._offset, dtype=np.uint64)
        times = np.full(self.records, FIRST_US + seq_no, dtype=np.uint64)
        bodies = [b"%d" % offset for offset in offsets]
        self.rows += [(int(o), FIRST_US + seq_no, b) for o, b in zip(offsets, bodies, strict=True)]
        name: int | str = seq_no
        path = f"log/Bucket={seq_no // 4096 * 4096:016x}/FragmentSeqNo={seq_no:016x}.parquet"
        column, stored = "offset", offsets
        if self.by_uuid:
            name = str(uuid.UUID(int=seq_no))
            path = f"log/Uuid={name}.parquet"
            column, stored = "relative_offset", offsets - np.uint64(first)
        data = parquet(column, stored, times, bodies)
        self.objects[path] = data
        return {
            "path": path,
            "seq_no": name,
            "start": {"offset": first},
            "limit": {"offset": self._offset},
            "num_bytes": len(data),
            "setsum": sum_of_records(stored, times, pa.array(bodies, pa.binary())).hexdigest(),
        }


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def parquet(column: str, offsets: Any, times: Any, bodies: list[bytes]) -> bytes:
    """As wal3's writer makes it: snappy, with the Arrow schema in the footer."""
    arrays = [pa.array(offsets), pa.array(times), pa.array(bodies, type=pa.binary())]
    names = (column, "timestamp_us", "body")
    fields = [pa.field(n, a.type, nullable=False) for n, a in zip(names, arrays, strict=True)]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), sink)
    return sink.getvalue()


def plan(
    *, first_to_keep: int = 1, drop: tuple[int, int] = (0, 0), with_uuids: bool = True
) -> bytes:
    """wal3's plan of a collection; older versions leave out whether fragments are UUIDs."""
    value: dict[str, object] = {
        "snapshots_to_drop": [],
        "snapshots_to_make": [],
        "snapshot_for_root": None,
        "fragments_to_drop_start": drop[0],
        "fragments_to_drop_limit": drop[1],
        "fragments_are_uuids": False,
        "setsum_to_discard": ZEROS,
        "first_to_keep": {"offset": first_to_keep},
    }
    if not with_uuids:
        del value["fragments_are_uuids"]
    return compact(value)


async def cut_off(store: sl.Store) -> int | None:
    """How far wal3's collector would go: to the lowest of all cursors, as it reads them."""
    found = [
        json.loads((await store.get(row.path)).data)["position"]["offset"]
        async for row in store.list("cursor/")
    ]
    return min(found, default=None)
