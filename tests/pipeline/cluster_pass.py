"""One pass of everything on a cluster, with the herd on S3: source, sink, stream, and all jobs.

First each task tells where it runs, with which Python, and what it finds there.

    python cluster_pass.py MASTER ROOT CHECKPOINT CONF

Prints what came of it as JSON. Run by ``test_cluster``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator

import pyarrow as pa

import stratalog as sl
from stratalog.pipeline import RunOptions, read_output, run_pipeline
from stratalog.pipeline.read.dataframes import read_herd
from stratalog.pipeline.session import session

LOGS = 6
RECORDS = 50
KEYS = 7
KEY = "split(cast(body as string), '-')[0]"


async def write(root: str) -> None:
    async with sl.Herd.open(root, server="api") as herd:
        for number in range(LOGS):
            log = await herd.create(f"log-{number}")
            await log.append_many([b"k%d-%d" % (each % KEYS, each) for each in range(RECORDS)])


def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        facts = {
            "place": os.getcwd(),
            "python": sys.executable,
            "version": sl.__version__,
            "variable": os.environ.get("TOLD"),
        }
        yield pa.RecordBatch.from_pydict({"told": [json.dumps(facts)]})


def main(master: str, root: str, checkpoint: str, conf: dict[str, str]) -> dict[str, object]:
    asyncio.run(write(root))
    with session(master=master, conf=conf) as spark:
        tasks = spark.range(2, numPartitions=2).mapInArrow(tell, "told string").collect()
        read = read_herd(spark, root).count()
        rows = spark.range(0, 100, 1, 4).selectExpr("concat('k', id % 7, '-', id) AS body")
        for _ in range(2):
            writing = rows.write.format("stratalog").mode("append").option("log", "sunk")
            writing.option("create", "true").option("queryId", "pass").option("batchId", 0).save(
                root
            )
        sunk = read_herd(spark, root, logs=["sunk"]).count()
        with sl.sync.Herd.open(root) as herd:
            source = f"{root}/logs/{herd.log('sunk').id()}"
        loaded = spark.read.format("stratalog").load(source).distinct().count()
        query = (
            spark.readStream.format("stratalog")
            .option("maxRecordsPerTrigger", "60")
            .load(source)
            .select("body")
            .writeStream.format("stratalog")
            .option("log", "streamed")
            .option("create", "true")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start(root)
        )
        query.awaitTermination()
        streamed = read_herd(spark, root, logs=["streamed"]).count()
        report = run_pipeline(
            spark, root, server="worker", merge=KEY, options=RunOptions(interval_s=0.0)
        )
        state = read_output(spark, root, "latest").groupBy("log").count().collect()
        return {
            "master": spark.sparkContext.master,
            "tasks": [json.loads(row.told) for row in tasks],
            "read": read,
            "sunk": sunk,
            "loaded": loaded,
            "streamed": streamed,
            "ok": report.ok,
            "troubles": list(report.troubles),
            "merged": {stage.stage: stage.records for stage in report.stages}["materialize"],
            "stages": [stage.stage for stage in report.stages],
            "state": {row["log"]: row["count"] for row in state},
        }


if __name__ == "__main__":
    master, root, checkpoint, conf = sys.argv[1:]
    print(json.dumps(main(master, root, checkpoint, json.loads(conf))))
