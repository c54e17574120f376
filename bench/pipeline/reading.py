"""Reading a whole log against ``spark.read.parquet`` of the same files.

The baseline gets the schema, as the native read does, and the folder. Inferring the schema, or a
list of all files, would be slower. Both produce every row. Spark lists the folder; ours reads the
manifest, walks the tree and puts a pin, each time.
"""

from __future__ import annotations

from bench.object_log.bulk import load
from bench.object_log.workload import make_bodies, split
from bench.pairs import Side
from bench.pipeline.spark import read_all, seconds_of, spark
from bench.places import DirectoryPlace
from bench.session import Session
from stratalog import LogWriter
from stratalog.pipeline.read.dataframes import Check, Via, read_log

SCHEMA = "offset bigint, timestamp_us bigint, body binary"
SIZES = {"100 B": (100, 2_000_000), "1 KiB": (1024, 400_000)}
"""How many records of each size make a log of a few hundred megabytes."""

PER_CALL = 10_000
TARGETS: dict[tuple[Via, Check], float | None] = {
    ("native", None): 0.9,
    ("arrow", False): 0.5,
    ("arrow", True): None,
}


async def reading(session: Session) -> None:
    for place in session.places:
        if isinstance(place, DirectoryPlace):
            for name in SIZES:
                await _compare(session, place, name)


async def _compare(session: Session, place: DirectoryPlace, size: str) -> None:
    record_bytes, count = SIZES[size]
    records = session.amount(count, count // 50)
    megabytes = records * record_bytes / 1e6
    url = place.new()
    async with LogWriter.open(url, create=True) as log:
        distinct = split(make_bodies(min(records, PER_CALL), record_bytes), PER_CALL)
        await load(log, distinct * (records // sum(map(len, distinct))))
    folder = f"{url.removeprefix('file://')}/log"

    async def baseline() -> float:
        rows = spark().read.schema(SCHEMA).option("recursiveFileLookup", "true")
        return megabytes / seconds_of(lambda: read_all(rows.parquet(folder)))

    def ours(via: Via, verify: Check) -> Side:
        async def side() -> float:
            return megabytes / seconds_of(
                lambda: read_all(read_log(spark(), url, via=via, verify=verify))
            )

        return side

    for (via, verify), target in TARGETS.items():
        await session.compare(
            question="reading",
            name=f"{'natively' if via == 'native' else 'through Arrow'}"
            f"{', verified' if verify else ''}, {size} records",
            place=place.name,
            against="spark.read.parquet",
            unit="MB/s",
            bound="at least",
            target=target,
            baseline=baseline,
            ours=ours(via, verify),
        )
    place.drop(url)
