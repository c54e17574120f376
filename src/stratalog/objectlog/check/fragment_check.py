"""What a scrub compares in one fragment: size, columns, count, offsets, times, and every record.

The decoder that readers use decides whether a fragment is good, so that a scrub and a reader never
disagree. Only when it refuses is the fragment looked at again, to name what is wrong.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stratalog.errors import Corrupt
from stratalog.objectlog.check.damage import Damage, DamageKind, about
from stratalog.objectlog.check.tree_check import examine_bytes
from stratalog.objectlog.stored import (
    RECORD_SCHEMA,
    Fragment,
    Oversized,
    decode_fragment,
    read_bounded,
    spans,
    with_digest,
)


def examine_size(size: int, entry: Fragment) -> Iterator[Damage]:
    """Whether the stored object is as long as it was written."""
    if size != entry.num_bytes:
        yield about(DamageKind.FRAGMENT_SIZE, entry, expected=entry.num_bytes, actual=size)


def examine_fragment(data: bytes, entry: Fragment) -> Iterator[Damage]:
    """What does not hold in a fragment: decode, hash and compare all of it, and every byte.

    What its rows show tells more than that some byte was changed.
    """
    found = [*examine_size(len(data), entry), *_examine_rows(data, entry)]
    changed = None if found else examine_bytes(data, entry)
    yield from found if changed is None else [changed]


def _examine_rows(data: bytes, entry: Fragment) -> Iterator[Damage]:
    unpromised = with_digest(entry, None)
    try:
        batch = decode_fragment(data, unpromised)
    except Corrupt as error:
        yield from _diagnose(data, entry, error)
    else:
        yield from _examine_times(batch.column(1).to_numpy(), entry)


def _diagnose(data: bytes, entry: Fragment, error: Corrupt) -> Iterator[Damage]:
    """Why a fragment was refused. If its structure holds, it is the sum."""
    columns = _columns_of(data, entry)
    if isinstance(columns, Damage):
        yield columns
        return
    offsets, times_us, relative = columns
    if not relative:  # otherwise the entry tells the time
        yield from _examine_times(times_us, entry)
    start = 0 if relative else entry.start.offset
    if not spans(offsets, entry, relative=relative):
        last = entry.limit.offset - entry.start.offset + start - 1
        yield about(
            DamageKind.FRAGMENT_OFFSETS,
            entry,
            expected=f"{entry.count} from {start} to {last}"
            if entry.is_sparse
            else f"{start} to {last}",
            actual=f"{offsets.min()} to {offsets.max()}" if len(offsets) else "none",
        )
    else:
        yield about(
            DamageKind.FRAGMENT_SUM,
            entry,
            expected=entry.setsum.hexdigest(),
            actual=error.actual if isinstance(error.actual, str) else None,
            detail="" if isinstance(error.actual, str) else str(error),
        )


def _columns_of(
    data: bytes, entry: Fragment
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], bool] | Damage:
    """Offsets, times, and whether the offsets are relative; or why there are none."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        names, count = file.schema_arrow.names, file.metadata.num_rows
        if count != entry.count:
            return about(DamageKind.FRAGMENT_COUNT, entry, expected=entry.count, actual=count)
        table = read_bounded(data, file)
    except Oversized as error:
        return about(DamageKind.FRAGMENT_DECODED_SIZE, entry, detail=str(error))
    except (pa.ArrowException, OSError, ValueError) as error:
        return about(DamageKind.FRAGMENT_UNREADABLE, entry, detail=str(error))
    try:
        relative = names[:1] == ["relative_offset"]
        if names[relative:3] != RECORD_SCHEMA.names[relative:]:
            raise ValueError(f"it has the columns {', '.join(names)}")
        columns = [column.combine_chunks() for column in table.columns[:3]]
        if any(column.null_count for column in columns):
            raise ValueError("it has nulls in a required column")
        columns[2].cast(pa.binary())
        offsets, times_us = (column.cast(pa.uint64()).to_numpy() for column in columns[:2])
    except (pa.ArrowException, ValueError) as error:
        return about(DamageKind.FRAGMENT_COLUMNS, entry, detail=str(error))
    return offsets, times_us, relative


def _examine_times(times_us: npt.NDArray[np.uint64], entry: Fragment) -> Iterator[Damage]:
    """Records lie within the times of their entry and never go back. wal3 notes none."""
    first_us, last_us = entry.start.timestamp_us, entry.limit.timestamp_us
    if not last_us or not len(times_us):
        return
    low, high = int(times_us.min()), int(times_us.max())
    if low < first_us or high > last_us:
        yield about(
            DamageKind.FRAGMENT_TIME,
            entry,
            expected=f"{first_us} to {last_us}",
            actual=f"{low} to {high}",
        )
    elif low != high and (times_us[1:] < times_us[:-1]).any():
        yield about(DamageKind.FRAGMENT_TIME, entry, detail="its records go back in time")
