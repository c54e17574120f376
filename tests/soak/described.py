"""Self-describing records for tests, as batches and as logs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from stratalog.objectlog.stored.fragment import RECORD_SCHEMA
from stratalog.objectlog.stored.self_describing import SelfDescribed, encode_described

RUN = "00112233445566ff"
TIME_US = 1_700_000_000_000_000


def record(writer: int, number: int, run: str = RUN, length: int = 40) -> bytes:
    return encode_described(SelfDescribed(run, writer, number, length))


def records(writer: int, numbers: range, run: str = RUN) -> list[bytes]:
    return [record(writer, number, run) for number in numbers]


def batch(offset: int, bodies: Sequence[bytes], at_us: int = TIME_US) -> pa.RecordBatch:
    """Records as a reader gives them."""
    offsets = np.arange(offset, offset + len(bodies), dtype=np.uint64)
    times = np.full(len(bodies), at_us, dtype=np.uint64)
    columns = [pa.array(offsets), pa.array(times), pa.array(bodies, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
