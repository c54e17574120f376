"""Stratalog on Spark: reading and writing logs, and the jobs that keep a herd.

    from stratalog.pipeline import latest_by_key, read_log, run_pipeline
    from stratalog.pipeline.materialize import materialize
    from stratalog.pipeline.session import session

    with session() as spark:
        read_log(spark, "s3://bucket/orders").groupBy("timestamp").count().show()
        run_pipeline(spark, "s3://bucket/herd", server="worker", merge=latest_by_key("…"))

The format ``stratalog`` of ``spark.read`` and ``df.write`` comes with it: see ``register``. Needs
the extra ``spark``. Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stratalog.pipeline.audit import read_audit
    from stratalog.pipeline.by_key import compact_by_key, compact_logs_by_key
    from stratalog.pipeline.compacted_logs import ByKey, CompactedLog, CompactedLogs
    from stratalog.pipeline.findings import Finding
    from stratalog.pipeline.herd_collect import HerdCollect, HerdCollectOptions, collect_herd
    from stratalog.pipeline.herd_compact import (
        HerdCompact,
        HerdCompactOptions,
        LogRetained,
        compact_herd,
    )
    from stratalog.pipeline.herd_scrub import HerdScrubOptions, scrub_herd
    from stratalog.pipeline.herd_verify import HerdVerify, HerdVerifyOptions, verify_herd
    from stratalog.pipeline.log_compact import compact_log, live_set
    from stratalog.pipeline.log_erase import erase_where, matching
    from stratalog.pipeline.materialized import (
        Materialized,
        MaterializedLog,
        MaterializeOptions,
        Trouble,
    )
    from stratalog.pipeline.merging import latest_by_key
    from stratalog.pipeline.output_reading import read_output
    from stratalog.pipeline.reading import pinned_herd, pinned_log, read_herd, read_log
    from stratalog.pipeline.report import html_of
    from stratalog.pipeline.run import RunEvent, RunOptions, run_forever, run_pipeline
    from stratalog.pipeline.run_report import RunReport, StageReport
    from stratalog.pipeline.scrub_results import HerdScrub, LogScrub
    from stratalog.pipeline.session import open_session
    from stratalog.pipeline.source import register
    from stratalog.pipeline.spark_errors import readable_spark_errors

__all__ = [
    "ByKey",
    "CompactedLog",
    "CompactedLogs",
    "Finding",
    "HerdCollect",
    "HerdCollectOptions",
    "HerdCompact",
    "HerdCompactOptions",
    "HerdScrub",
    "HerdScrubOptions",
    "HerdVerify",
    "HerdVerifyOptions",
    "LogRetained",
    "LogScrub",
    "MaterializeOptions",
    "Materialized",
    "MaterializedLog",
    "RunEvent",
    "RunOptions",
    "RunReport",
    "StageReport",
    "Trouble",
    "collect_herd",
    "compact_by_key",
    "compact_herd",
    "compact_log",
    "compact_logs_by_key",
    "erase_where",
    "html_of",
    "latest_by_key",
    "live_set",
    "matching",
    "open_session",
    "pinned_herd",
    "pinned_log",
    "read_audit",
    "read_herd",
    "read_log",
    "read_output",
    "readable_spark_errors",
    "register",
    "run_forever",
    "run_pipeline",
    "scrub_herd",
    "verify_herd",
]

_HOMES = {
    "ByKey": "compacted_logs",
    "CompactedLog": "compacted_logs",
    "CompactedLogs": "compacted_logs",
    "Finding": "findings",
    "HerdCollect": "herd_collect",
    "HerdCollectOptions": "herd_collect",
    "HerdCompact": "herd_compact",
    "HerdCompactOptions": "herd_compact",
    "HerdScrub": "scrub_results",
    "HerdScrubOptions": "herd_scrub",
    "HerdVerify": "herd_verify",
    "HerdVerifyOptions": "herd_verify",
    "LogRetained": "herd_compact",
    "LogScrub": "scrub_results",
    "MaterializeOptions": "materialized",
    "Materialized": "materialized",
    "MaterializedLog": "materialized",
    "RunEvent": "run",
    "RunOptions": "run",
    "RunReport": "run_report",
    "StageReport": "run_report",
    "Trouble": "materialized",
    "collect_herd": "herd_collect",
    "compact_herd": "herd_compact",
    "compact_by_key": "by_key",
    "compact_log": "log_compact",
    "compact_logs_by_key": "by_key",
    "html_of": "report",
    "latest_by_key": "merging",
    "live_set": "log_compact",
    "erase_where": "log_erase",
    "matching": "log_erase",
    "open_session": "session",
    "pinned_herd": "reading",
    "pinned_log": "reading",
    "read_audit": "audit",
    "read_herd": "reading",
    "read_log": "reading",
    "read_output": "output_reading",
    "readable_spark_errors": "spark_errors",
    "register": "source",
    "run_forever": "run",
    "run_pipeline": "run",
    "scrub_herd": "herd_scrub",
    "verify_herd": "herd_verify",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'stratalog.pipeline' has no attribute {name!r}")
    value: object = getattr(import_module(f"stratalog.pipeline.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
