"""Writing the Parquet files of outputs: what a Spark task does, through our own store.

A task gets rows sorted by log. It cuts them into files, one for each log, or several if the log has
more than ``file_bytes``, and uploads a few at a time. Each attempt at a task draws names of its
own, so what is left of an attempt that Spark gave up never gets into anybody's way.
"""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count, pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stratalog.blocking import loop_thread
from stratalog.errors import Invalid
from stratalog.objectlog.stored import INCARNATION_LENGTH
from stratalog.pipeline.outputs.output import folder_of
from stratalog.pipeline.spark import batch_of, whole_errors
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import Patience, PrefixedStore, Store, open_store, put_once

FILE_BYTES = 64 << 20
ROW_GROUP_BYTES = 16 << 20
UPLOADS_AT_ONCE = 16
UPLOAD_BYTES = 64 << 20
TIMEOUT_S = 60.0

FILES = pa.schema(
    [
        ("log", pa.string()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("num_bytes", pa.int64()),
        ("sha256", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Target:
    root_url: str
    job: str
    ids: Mapping[str, str]
    """The logs that it was given: their ids by name."""

    file_bytes: int = FILE_BYTES


def write_files(batches: Iterable[pa.RecordBatch], target: Target) -> Iterator[pa.RecordBatch]:
    """Upload the rows of one task, sorted by log, as files; gives what was uploaded."""
    filling: _Filling | None = None
    group_bytes = min(ROW_GROUP_BYTES, target.file_bytes)
    with whole_errors():
        uploads = _Uploads(target)
        for batch in batches:
            for log, rows in _in_pieces(batch, group_bytes):
                if filling is not None and (filling.log != log or filling.is_full):
                    uploads.begin(filling)
                    filling = None
                filling = filling or _Filling(log, rows.schema, target.file_bytes, group_bytes)
                filling.add(rows)
        if filling is not None:
            uploads.begin(filling)
        yield uploads.finish()


def _in_pieces(batch: pa.RecordBatch, piece_bytes: int) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each log, which are neighbours, in pieces of at most about so many bytes."""
    runs = pc.run_end_encode(batch.column("log"))
    ends = [0, *runs.run_ends.to_pylist()]
    for log, (first, end) in zip(runs.values.to_pylist(), pairwise(ends), strict=True):
        rows = batch.slice(first, end - first)
        size = -(-rows.num_rows * piece_bytes // max(rows.nbytes, piece_bytes))
        for start in range(0, rows.num_rows, size):
            yield log, rows.slice(start, size)


class _Filling:
    """A file that is being made, in memory."""

    def __init__(self, log: str, schema: pa.Schema, file_bytes: int, group_bytes: int) -> None:
        self.log = log
        self.rows = 0
        self._schema = schema
        self._file_bytes = file_bytes
        self._group_bytes = group_bytes
        self._sink = pa.BufferOutputStream()
        self._file = pq.ParquetWriter(self._sink, schema, compression="zstd", store_schema=False)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    @property
    def is_full(self) -> bool:
        return bool(self._sink.tell() >= self._file_bytes)

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        self.rows += rows.num_rows
        if self._waiting_bytes >= self._group_bytes:
            self._write_group()

    def finish(self) -> bytes:
        self._write_group()
        self._file.close()
        data = self._sink.getvalue().to_pybytes()
        assert isinstance(data, bytes)
        return data

    def _write_group(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._file.write_table(table, row_group_size=table.num_rows)
        self._waiting, self._waiting_bytes = [], 0


class _Uploads:
    """Files on their way, a few at a time, under the names of one attempt at a task."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._root = open_store(target.root_url)
        self._run = DEFAULT_RUNTIME.new_id(INCARNATION_LENGTH)
        self._numbers = count(1)
        self._under_way: deque[tuple[int, Future[str], str, int, str]] = deque()
        self._bytes = 0
        self._done: list[tuple[str, str, int, int, str]] = []

    def begin(self, filling: _Filling) -> None:
        log_id = self._target.ids.get(filling.log)
        if log_id is None:
            raise Invalid(
                f"the merge made rows of the log {filling.log!r}, which it was not given",
                hint="Keep the column `log` of each row as it is.",
            )
        data = filling.finish()
        folder = PrefixedStore(self._root, folder_of(self._target.job, log_id))
        while self._under_way and (
            len(self._under_way) >= UPLOADS_AT_ONCE or self._bytes + len(data) > UPLOAD_BYTES
        ):
            self._settle()
        path = loop_thread().relay(lambda: self._put(folder, data))
        digest = hashlib.sha256(data).hexdigest()
        self._under_way.append((len(data), path, filling.log, filling.rows, digest))
        self._bytes += len(data)

    def finish(self) -> pa.RecordBatch:
        while self._under_way:
            self._settle()
        return batch_of(self._done, FILES)

    def _settle(self) -> None:
        size, path, log, rows, digest = self._under_way.popleft()
        self._done.append((log, path.result(), rows, size, digest))
        self._bytes -= size

    async def _put(self, folder: Store, data: bytes) -> str:
        def name() -> str:
            return f"{self._run}-{next(self._numbers)}.parquet"

        return await put_once(folder, name, data, Patience(DEFAULT_RUNTIME, TIMEOUT_S))
