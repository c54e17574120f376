"""Materializing many small logs in one Spark job, against one job for each of them.

The baseline merges a sample of the logs one by one, by the same function. The ratio compares the
time per log.
"""

from __future__ import annotations

from bench.pipeline.herds import make_herd, orders
from bench.pipeline.spark import seconds_of, spark
from bench.places import DirectoryPlace
from bench.results import Figure, Ratio
from bench.session import Session
from stratalog.pipeline import latest_by_key
from stratalog.pipeline.materialize import MaterializeOptions, materialize

LOGS = 1_000
SAMPLE = 50
RECORDS = 10
ROUNDS = 3
TARGET = 20.0
KEY = "substring(cast(body as string), 10, 6)"


async def merging(session: Session) -> None:
    for place in session.places:
        if isinstance(place, DirectoryPlace):
            await _compare(session, place)


async def _compare(session: Session, place: DirectoryPlace) -> None:
    logs, sample = session.amount(LOGS, 40), session.amount(SAMPLE, 4)
    url = place.new()
    names = await make_herd(url, logs, [orders(RECORDS, 5)])
    merge = latest_by_key(KEY)
    alone: list[float] = []
    together: list[float] = []
    materialize(
        spark(), url, merge, logs=names[:1], options=MaterializeOptions(job="warm", cursor="warm")
    )
    for number in range(session.amount(ROUNDS, 1)):
        options = MaterializeOptions(job=f"alone{number}", cursor=f"alone{number}")

        def each(options: MaterializeOptions = options) -> None:
            for name in names[:sample]:
                done = materialize(spark(), url, merge, logs=[name], options=options)
                assert done.records == RECORDS, "all of it was merged"

        alone.append(sample / seconds_of(each))
        options = MaterializeOptions(job=f"all{number}", cursor=f"all{number}")

        def everything(options: MaterializeOptions = options) -> None:
            done = materialize(spark(), url, merge, options=options)
            assert done.records == logs * RECORDS, "all of it was merged"

        together.append(logs / seconds_of(everything))
    session.record(
        Ratio(
            question="merging",
            name=f"materialize, {logs:,} logs of {RECORDS} records at once",
            place=place.name,
            against=f"one job for each of {sample}",
            unit="logs/s",
            baseline=alone,
            ours=together,
            bound="at least",
            target=TARGET,
        )
    )
    session.record(
        Figure(
            question="merging",
            name="one Spark job for one small log",
            place=place.name,
            unit="s",
            value=1 / min(alone),
        )
    )
    place.drop(url)
