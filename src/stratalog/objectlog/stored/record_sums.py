"""What the records of a batch add up to: one hash a record, everything else in bulk.

A record's item is ``offset (u64 BE) ‖ timestamp_us (u64 BE) ‖ body``. With the extra ``fast`` all
items of a batch are hashed and added up by one call (see ``stratalog.hashing``), which also leaves
the interpreter to others. Without it each goes through ``hashlib``, and how it gets there decides
what a batch costs beside the hash itself:

    small bodies    header and body of a whole chunk are joined by Arrow, so that each record is one
                    object and one call; copying is cheaper than a view and a second call
    large bodies    the hash is fed the header and then a view of the body, which is not copied
    few records     likewise: joining takes as long for one record as hashing ten

Chunks are small, so that what is made for one is still in the processor's cache when it is hashed,
and its memory is used again for the next.
"""

import os
import struct
import threading
from collections.abc import Iterator
from hashlib import sha3_256
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.errors import Corrupt
from stratalog.hashing import MAKER
from stratalog.setsum import Setsum

CHUNK_RECORDS = 1024
JOIN_BYTES_MAX = 512
"""Bodies of a chunk are joined with their headers if they are no larger than this on average."""

JOIN_RECORDS_MIN = 32
"""And if there are so many."""

# Below this size hashlib keeps the interpreter to itself. Threads that hash small items at the same
# time would only take it from each other, at a price, so they take turns.
PARALLEL_BYTES_MIN = 2048
_turn = threading.Lock()

_begun = sha3_256()
_nothing = pa.scalar(b"", pa.binary())


def _renew_turn() -> None:
    """A forked child must not inherit a turn that its parent's thread has."""
    global _turn
    _turn = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_turn)


def sum_of_records(
    offsets: npt.NDArray[np.uint64], timestamps_us: npt.NDArray[np.uint64], bodies: pa.Array
) -> Setsum:
    """The sum of a batch of log records. Their bodies are a column of binary without nulls."""
    headers = np.empty((len(offsets), 2), dtype=">u8")
    headers[:, 0] = offsets
    headers[:, 1] = timestamps_us
    bounds = body_bounds(bodies)
    kernel = MAKER.kernel_for(len(offsets), int(bounds[-1] - bounds[0]))
    if kernel is not None:
        return Setsum.of_totals(kernel.totals(headers, bodies.buffers()[2], bounds))
    if len(bounds) > 1 and bounds[1] - bounds[0] < PARALLEL_BYTES_MIN:
        with _turn:
            digests = b"".join(_digests(headers, bodies, bounds))
    else:
        digests = b"".join(_digests(headers, bodies, bounds))
    return Setsum.of_digests(digests)


def check_sum(found: Setsum, promised: Setsum, what: str, path: str) -> None:
    """Refuse what does not add up to the setsum that was promised."""
    if found != promised:
        raise Corrupt(
            f"{what} does not add up to its setsum",
            path=path,
            expected=promised.hexdigest(),
            actual=found.hexdigest(),
        )


def body_views(column: pa.Array) -> list[memoryview]:
    """Each body of a binary column, without copying it."""
    data_buffer = column.buffers()[2]
    if data_buffer is None:
        return [memoryview(b"")] * len(column)
    data = memoryview(data_buffer)
    return [data[low:high] for low, high in pairwise(body_bounds(column).tolist())]


def bytes_of_records(batch: pa.RecordBatch) -> int:
    """What ``batch.nbytes`` is. Arrow releases the interpreter to find it out, which a thread
    that has to wait to get it back pays for with ten times the time."""
    bounds = body_bounds(batch.column(2))
    numbers: int = (8 + 8 + 4) * batch.num_rows
    return numbers + int(bounds[-1] - bounds[0])


def body_bounds(column: pa.Array) -> npt.NDArray[np.int32]:
    """Where each body begins, and where the last one ends."""
    stored = column.buffers()[1]
    if stored is None or not stored.size:
        return np.zeros(len(column) + 1, dtype=np.int32)
    return np.frombuffer(stored, dtype=np.int32)[column.offset : column.offset + len(column) + 1]


def _digests(
    headers: npt.NDArray[np.uint64], bodies: pa.Array, bounds: npt.NDArray[np.int32]
) -> Iterator[bytes]:
    """The digests of each chunk, one after the other."""
    for low in range(0, len(bodies), CHUNK_RECORDS):
        high = min(low + CHUNK_RECORDS, len(bodies))
        chunk = bodies.slice(low, high - low)
        small = bounds[high] - bounds[low] <= JOIN_BYTES_MAX * (high - low)
        if small and high - low >= JOIN_RECORDS_MIN:
            yield _digests_of_joined(headers[low:high].tobytes(), chunk)
        else:
            yield _digests_of_views(headers[low:high].tobytes(), chunk)


def _digests_of_joined(headers: bytes, bodies: pa.Array) -> bytes:
    """To copy a hash that has just begun takes less time than to begin another one."""
    begin, digests = _begun.copy, []
    column = pa.Array.from_buffers(pa.binary(16), len(bodies), [None, pa.py_buffer(headers)])
    joined = pc.binary_join_element_wise(column.cast(pa.binary()), bodies, _nothing)
    for item in joined.to_numpy(zero_copy_only=False).tolist():
        begun = begin()
        begun.update(item)
        digests.append(begun.digest())
    return b"".join(digests)


def _digests_of_views(headers: bytes, bodies: pa.Array) -> bytes:
    begin, digests = _begun.copy, []
    for (header,), body in zip(struct.iter_unpack("16s", headers), body_views(bodies), strict=True):
        begun = begin()
        begun.update(header)
        begun.update(body)
        digests.append(begun.digest())
    return b"".join(digests)
