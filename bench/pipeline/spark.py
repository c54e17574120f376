"""The Spark session of a bench, and frames that are measured without being stored."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from stratalog.pipeline import register
from stratalog.pipeline.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRIVER_MEMORY = "4g"


@cache
def spark() -> SparkSession:
    """One session for the whole run, on all cores of this machine."""
    opened = open_session(
        master=f"local[{cores()}]", conf={"spark.driver.memory": DRIVER_MEMORY}, name="bench"
    )
    register(opened)
    atexit.register(opened.stop)
    return opened


def cores() -> int:
    return len(os.sched_getaffinity(0))


def read_all(rows: DataFrame) -> None:
    """Produce every row, and store none."""
    rows.write.format("noop").mode("overwrite").save()


def seconds_of(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s
