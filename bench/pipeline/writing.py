"""The sink against ``df.write.parquet`` of the same rows, which are in Spark's memory.

Both store every row as Parquet. Ours also hashes each row, puts synced objects, and links them.
"""

from __future__ import annotations

import shutil
import tempfile

from bench.pipeline.spark import cores, seconds_of, spark
from bench.places import DirectoryPlace
from bench.session import Session
from stratalog import create_log

SIZES = {"100 B": (100, 2_000_000, 0.3), "1 KiB": (1024, 400_000, 0.4)}


async def writing(session: Session) -> None:
    for place in session.places:
        if isinstance(place, DirectoryPlace):
            for name in SIZES:
                await _compare(session, place, name)


async def _compare(session: Session, place: DirectoryPlace, size: str) -> None:
    record_bytes, count, target = SIZES[size]
    records = session.amount(count, count // 50)
    megabytes = records * record_bytes / 1e6
    hashes = -(-record_bytes // 32)
    random = ", ".join(f"unhex(sha2(concat(id, '-{number}'), 256))" for number in range(hashes))
    rows = (
        spark()
        .range(0, records, 1, 2 * cores())
        .selectExpr(f"substring(concat({random}), 1, {record_bytes}) AS body")
        .persist()
    )
    rows.count()

    async def baseline() -> float:
        folder = tempfile.mkdtemp(prefix="stratalog-bench-")
        try:
            return megabytes / seconds_of(
                lambda: (
                    rows.write.mode("overwrite")
                    .option("compression", "zstd")
                    .parquet(f"{folder}/rows")
                )
            )
        finally:
            shutil.rmtree(folder)

    async def ours() -> float:
        url = place.new()
        await create_log(url)
        try:
            return megabytes / seconds_of(
                lambda: rows.write.format("stratalog").mode("append").save(url)
            )
        finally:
            place.drop(url)

    await session.compare(
        question="writing",
        name=f"sink, {size} records",
        place=place.name,
        against="df.write.parquet",
        unit="MB/s",
        bound="at least",
        target=target,
        baseline=baseline,
        ours=ours,
    )
    rows.unpersist()
