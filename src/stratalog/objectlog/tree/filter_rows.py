"""Rows taken out of fragments: what lives on after a compaction, and what does not.

A row keeps its offset, its time, its body, and the offset and time that it was hashed with. Nearly
always these are its own. A row that was written before its position was known was hashed with
others, and keeps them, so that the sum of the log does not change when the row moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from stratalog.indexset import IndexSet
from stratalog.objectlog.stored import (
    RECORD_SCHEMA,
    Compression,
    EncodedFragment,
    Fragment,
    Numbers,
    Verify,
    decode_items,
    encode_sparse,
    sum_of_records,
)
from stratalog.objectlog.tree.seek_window import Window
from stratalog.setsum import Setsum


@dataclass(frozen=True, slots=True)
class Survivors:
    """Rows in ascending order, and with which offset and time each was hashed."""

    rows: pa.RecordBatch
    item_offsets: Numbers
    item_times_us: Numbers

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def offsets(self) -> IndexSet:
        return IndexSet.of(self.rows.column(0))

    @property
    def setsum(self) -> Setsum:
        """The sum of these rows, hashed from them."""
        return sum_of_records(self.item_offsets, self.item_times_us, self.rows.column(2))

    def divide(self, live: IndexSet) -> tuple[Survivors, Survivors]:
        mask = live.contains(self.rows.column(0).to_numpy())
        return self._where(mask), self._where(~mask)

    def within(self, window: Window) -> Survivors:
        offsets = self.rows.column(0).to_numpy()
        mask = offsets >= np.uint64(window.from_offset)
        if window.to_offset is not None:
            mask &= offsets < np.uint64(window.to_offset)
        return self._where(mask)

    def encode(
        self, compression: Compression = "zstd", setsum: Setsum | None = None
    ) -> EncodedFragment:
        """As a sparse fragment. ``setsum`` is their sum if they were hashed before."""
        columns = list(self.rows.columns)
        offsets, times_us = (column.to_numpy() for column in columns[:2])
        as_they_are = np.array_equal(offsets, self.item_offsets)
        if not (as_they_are and np.array_equal(times_us, self.item_times_us)):
            columns += [pa.array(self.item_offsets), pa.array(self.item_times_us)]
        return encode_sparse(columns, self.setsum if setsum is None else setsum, compression)

    def _where(self, mask: np.typing.NDArray[np.bool_]) -> Survivors:
        if mask.all():
            return self
        return Survivors(
            self.rows.filter(pa.array(mask)), self.item_offsets[mask], self.item_times_us[mask]
        )


def survivors_of(data: bytes, entry: Fragment, *, verify: Verify = True) -> Survivors:
    """All rows of a stored fragment, verified against its entry."""
    return Survivors(*decode_items(data, entry, verify=verify))


def joined(parts: Iterable[Survivors]) -> Survivors:
    """The rows of neighbours, in their order."""
    several = [part for part in parts if len(part)]
    if not several:
        nothing = np.empty(0, dtype=np.uint64)
        empty = [pa.array([], field.type) for field in RECORD_SCHEMA]
        return Survivors(pa.RecordBatch.from_arrays(empty, schema=RECORD_SCHEMA), nothing, nothing)
    if len(several) == 1:
        return several[0]
    columns = [
        pa.concat_arrays([part.rows.column(number) for part in several])
        for number in range(len(RECORD_SCHEMA))
    ]
    return Survivors(
        pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA),
        np.concatenate([part.item_offsets for part in several]),
        np.concatenate([part.item_times_us for part in several]),
    )
