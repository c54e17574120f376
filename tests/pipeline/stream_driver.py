"""A driver that copies one log into another by a stream, until it is killed or told to end.

    python stream_driver.py SOURCE TARGET CHECKPOINT [--once]

Says ``streaming`` when the query has started. Run by tests, which kill it.
"""

from __future__ import annotations

import sys

from stratalog.pipeline import register
from stratalog.pipeline.session import session

RECORDS_PER_BATCH = "300"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that does not try to become fast."""


def main(source: str, target: str, checkpoint: str, once: bool) -> None:
    conf = {"spark.driver.extraJavaOptions": SHORT_LIVED}
    with session(master="local[2]", conf=conf, name="stream-driver") as spark:
        register(spark)
        rows = (
            spark.readStream.format("stratalog")
            .option("maxRecordsPerTrigger", RECORDS_PER_BATCH)
            .option("cursor", "copy")
            .load(source)
            .select("body")
            .repartition(2)
        )
        writing = rows.writeStream.format("stratalog").option("checkpointLocation", checkpoint)
        if once:
            writing = writing.trigger(availableNow=True)
        query = writing.start(target)
        print("streaming", flush=True)
        query.awaitTermination()


if __name__ == "__main__":
    source, target, checkpoint, *more = sys.argv[1:]
    main(source, target, checkpoint, once="--once" in more)
