"""The questions about the pipeline, one module each."""

from __future__ import annotations

from bench.pipeline.marking import marking
from bench.pipeline.merging import LOGS, RECORDS, merging
from bench.pipeline.reading import reading
from bench.pipeline.scrubbing import scrubbing
from bench.pipeline.spark import DRIVER_MEMORY
from bench.pipeline.whole import whole
from bench.pipeline.writing import writing
from bench.session import Bench

PIPELINE = Bench(
    name="pipeline",
    questions={
        "reading": reading,
        "writing": writing,
        "merging": merging,
        "scrubbing": scrubbing,
        "marking": marking,
        "whole": whole,
    },
    config={
        "master": "local, all cores",
        "driver_memory": DRIVER_MEMORY,
        "small_logs": LOGS,
        "records_per_small_log": RECORDS,
        "compression": "zstd",
    },
)
