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

from stratalog.renamed import renamed_modules

if TYPE_CHECKING:
    from stratalog.pipeline.check import (
        Finding,
        HerdScrub,
        HerdScrubOptions,
        HerdVerify,
        HerdVerifyOptions,
        LogScrub,
        read_audit,
        scrub_herd,
        verify_herd,
    )
    from stratalog.pipeline.collect import HerdCollect, HerdCollectOptions, collect_herd
    from stratalog.pipeline.compact import (
        ByKey,
        CompactedLog,
        CompactedLogs,
        HerdCompact,
        HerdCompactOptions,
        LogRetained,
        compact_by_key,
        compact_herd,
        compact_log,
        compact_logs_by_key,
        erase_where,
        live_set,
        matching,
    )
    from stratalog.pipeline.data_source import register
    from stratalog.pipeline.jobs import Trouble
    from stratalog.pipeline.materialize import (
        Materialized,
        MaterializedLog,
        MaterializeOptions,
        latest_by_key,
    )
    from stratalog.pipeline.outputs import read_output
    from stratalog.pipeline.run import (
        RunEvent,
        RunOptions,
        RunReport,
        StageReport,
        html_of,
        run_forever,
        run_pipeline,
    )
    from stratalog.pipeline.session import open_session
    from stratalog.pipeline.source import pinned_herd, pinned_log, read_herd, read_log
    from stratalog.pipeline.spark import readable_spark_errors

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
    "ByKey": "compact",
    "CompactedLog": "compact",
    "CompactedLogs": "compact",
    "Finding": "check",
    "HerdCollect": "collect",
    "HerdCollectOptions": "collect",
    "HerdCompact": "compact",
    "HerdCompactOptions": "compact",
    "HerdScrub": "check",
    "HerdScrubOptions": "check",
    "HerdVerify": "check",
    "HerdVerifyOptions": "check",
    "LogRetained": "compact",
    "LogScrub": "check",
    "MaterializeOptions": "materialize",
    "Materialized": "materialize",
    "MaterializedLog": "materialize",
    "RunEvent": "run",
    "RunOptions": "run",
    "RunReport": "run",
    "StageReport": "run",
    "Trouble": "jobs",
    "collect_herd": "collect",
    "compact_herd": "compact",
    "compact_by_key": "compact",
    "compact_log": "compact",
    "compact_logs_by_key": "compact",
    "html_of": "run",
    "latest_by_key": "materialize",
    "live_set": "compact",
    "erase_where": "compact",
    "matching": "compact",
    "open_session": "session",
    "pinned_herd": "source",
    "pinned_log": "source",
    "read_audit": "check",
    "read_herd": "source",
    "read_log": "source",
    "read_output": "outputs",
    "readable_spark_errors": "spark",
    "register": "data_source",
    "run_forever": "run",
    "run_pipeline": "run",
    "scrub_herd": "check",
    "verify_herd": "check",
}

renamed_modules(
    {
        **dict.fromkeys(
            [
                "stratalog.pipeline.audit",
                "stratalog.pipeline.herd_collect",
                "stratalog.pipeline.herd_scrub",
                "stratalog.pipeline.herd_verify",
                "stratalog.pipeline.merging",
                "stratalog.pipeline.output_reading",
                "stratalog.pipeline.reading",
                "stratalog.pipeline.report",
            ],
            "stratalog.pipeline",
        ),
        "stratalog.pipeline.spark_errors": "stratalog.pipeline.spark",
    }
)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'stratalog.pipeline' has no attribute {name!r}")
    value: object = getattr(import_module(f"stratalog.pipeline.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
