"""Reading everything: iteration against pyarrow on the same files, and against hashing alone.

Target of unverified iteration: 0.8 of pyarrow file by file (``read_table``). pyarrow's dataset of
all files is shown without a target, as the harder measure. It reads ahead, as our iteration does,
and stays in C++. From a local directory 0.8 of it would be missed.

Target of iteration that hashes every record (``verify="records"``): a ratio to a loop that only
hashes, on one thread, by ``hashlib``. What the digests of the default cost is in ``digests``. Two
hashing threads are shown as well, by ``hashlib`` and in vectors. By ``hashlib`` a second core does
not help, because hashing a record below 2 KiB holds the GIL. In vectors, as the library hashes, the
loop is the upper bound of any iteration.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha3_256
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bench.object_log.bulk import load
from bench.object_log.workload import label, make_batches, size_of
from bench.pairs import Side
from bench.results import Figure
from bench.session import Session
from stratalog import LogReader, LogWriter, ReaderOptions
from stratalog.objectlog.options import KIB
from stratalog.objectlog.stored import Verify
from stratalog.objectlog.stored.record_sums import sum_of_records

TARGET = 0.8

T = TypeVar("T")
_header = struct.Struct(">QQ")


async def iteration(session: Session) -> None:
    for place in session.places:
        for record_bytes in (1 * KIB, 8 * KIB):
            url = place.new()
            await _compare(session, place.name, url, record_bytes)
            place.drop(url)


async def _compare(session: Session, place: str, url: str, record_bytes: int) -> None:
    batches = make_batches(session.amount(96, 8), record_bytes)
    async with LogWriter.open(url, create=True) as log:
        await load(log, batches)
    files, filesystem = await _files(url)
    dataset = ds.dataset(files, format="parquet", filesystem=filesystem)
    items = [_header.pack(7, 7) + body for batch in batches for body in batch]
    megabytes = size_of(batches) / 1e6

    def read_tables() -> None:
        for file in files:
            pq.read_table(file, filesystem=filesystem)

    def scan_dataset() -> None:
        for _ in dataset.to_batches():
            pass

    def in_a_thread(work: Callable[[], None]) -> Side:
        async def side() -> float:
            return megabytes / await asyncio.to_thread(_timed, work)

        return side

    def iterating(*, verify: Verify) -> Side:
        async def side() -> float:
            started_s = time.perf_counter()
            async with LogReader.open(url, options=ReaderOptions(verify=verify)) as reader:
                async for _ in reader.batches():
                    pass
            return megabytes / (time.perf_counter() - started_s)

        return side

    verify: Verify
    for name, against, baseline, verify, target in (
        ("unverified", "pyarrow, file by file", in_a_thread(read_tables), False, TARGET),
        ("unverified", "pyarrow, dataset", in_a_thread(scan_dataset), False, None),
        ("hashed", "hashing, one thread", in_a_thread(lambda: _hash(items)), "records", TARGET),
    ):
        await session.compare(
            question="iteration",
            name=f"{name}, {label(record_bytes)} records",
            place=place,
            against=against,
            unit="MB/s",
            bound="at least",
            target=target,
            baseline=baseline,
            ours=iterating(verify=verify),
        )
    for name, work in (
        ("hashing, two threads", lambda: _on_two_threads(_hash, items[::2], items[1::2])),
        ("hashing in vectors, two threads", _in_vectors(batches)),
    ):
        session.record(
            Figure(
                question="iteration",
                name=f"{name}, {label(record_bytes)} records",
                place=place,
                unit="MB/s",
                value=megabytes / _timed(work),
            )
        )


async def _files(url: str) -> tuple[list[str], pafs.FileSystem]:
    """The paths of the fragments, and pyarrow's own way to them."""
    async with LogReader.open(url) as reader:
        paths = [fragment.path for fragment in await reader.scan()]
    if url.startswith("file://"):
        base, filesystem = url.removeprefix("file://"), pafs.LocalFileSystem()
    else:
        base = url.removeprefix("s3://")
        filesystem = pafs.S3FileSystem(
            endpoint_override=os.environ["AWS_ENDPOINT_URL"],
            access_key=os.environ["AWS_ACCESS_KEY_ID"],
            secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
            region=os.environ["AWS_REGION"],
        )
    return [f"{base}/{path}" for path in paths], filesystem


def _timed(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


def _hash(items: Sequence[bytes]) -> None:
    for item in items:
        sha3_256(item).digest()


def _in_vectors(batches: Sequence[Sequence[bytes]]) -> Callable[[], None]:
    columns = [pa.array(batch, pa.binary()) for batch in batches]

    def hash_columns(some: Sequence[pa.Array]) -> None:
        for column in some:
            numbers = np.zeros(len(column), dtype=np.uint64)
            sum_of_records(numbers, numbers, column)

    return lambda: _on_two_threads(hash_columns, columns[::2], columns[1::2])


def _on_two_threads(work: Callable[[Sequence[T]], None], *shares: Sequence[T]) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, shares))
