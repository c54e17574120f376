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
    from stratalog.pipeline.check import Finding as Finding
    from stratalog.pipeline.check import HerdScrub as HerdScrub
    from stratalog.pipeline.check import HerdScrubOptions as HerdScrubOptions
    from stratalog.pipeline.check import HerdVerify as HerdVerify
    from stratalog.pipeline.check import HerdVerifyOptions as HerdVerifyOptions
    from stratalog.pipeline.check import LogScrub as LogScrub
    from stratalog.pipeline.check import read_audit as read_audit
    from stratalog.pipeline.check import scrub_herd as scrub_herd
    from stratalog.pipeline.check import verify_herd as verify_herd
    from stratalog.pipeline.collect import HerdCollect as HerdCollect
    from stratalog.pipeline.collect import HerdCollectOptions as HerdCollectOptions
    from stratalog.pipeline.collect import collect_herd as collect_herd
    from stratalog.pipeline.compact import ByKey as ByKey
    from stratalog.pipeline.compact import CompactedLog as CompactedLog
    from stratalog.pipeline.compact import CompactedLogs as CompactedLogs
    from stratalog.pipeline.compact import HerdCompact as HerdCompact
    from stratalog.pipeline.compact import HerdCompactOptions as HerdCompactOptions
    from stratalog.pipeline.compact import LogRetained as LogRetained
    from stratalog.pipeline.compact import check_policy as check_policy
    from stratalog.pipeline.compact import compact_by_key as compact_by_key
    from stratalog.pipeline.compact import compact_herd as compact_herd
    from stratalog.pipeline.compact import compact_log as compact_log
    from stratalog.pipeline.compact import compact_logs_by_key as compact_logs_by_key
    from stratalog.pipeline.compact import erase_where as erase_where
    from stratalog.pipeline.compact import live_set as live_set
    from stratalog.pipeline.compact import matching as matching
    from stratalog.pipeline.data_source import register as register
    from stratalog.pipeline.jobs import Trouble as Trouble
    from stratalog.pipeline.materialize import Materialized as Materialized
    from stratalog.pipeline.materialize import MaterializedLog as MaterializedLog
    from stratalog.pipeline.materialize import MaterializeOptions as MaterializeOptions
    from stratalog.pipeline.materialize import latest_by_key as latest_by_key
    from stratalog.pipeline.outputs import read_output as read_output
    from stratalog.pipeline.read import pinned_herd as pinned_herd
    from stratalog.pipeline.read import pinned_log as pinned_log
    from stratalog.pipeline.read import read_herd as read_herd
    from stratalog.pipeline.read import read_log as read_log
    from stratalog.pipeline.run import RunEvent as RunEvent
    from stratalog.pipeline.run import RunOptions as RunOptions
    from stratalog.pipeline.run import RunReport as RunReport
    from stratalog.pipeline.run import StageReport as StageReport
    from stratalog.pipeline.run import html_of as html_of
    from stratalog.pipeline.run import run_forever as run_forever
    from stratalog.pipeline.run import run_pipeline as run_pipeline
    from stratalog.pipeline.session import open_session as open_session
    from stratalog.pipeline.spark import readable_spark_errors as readable_spark_errors

_NAMES = {
    "check": """
        Finding HerdScrub HerdScrubOptions HerdVerify HerdVerifyOptions LogScrub read_audit
        scrub_herd verify_herd
    """,
    "collect": "HerdCollect HerdCollectOptions collect_herd",
    "compact": """
        ByKey CompactedLog CompactedLogs HerdCompact HerdCompactOptions LogRetained check_policy
        compact_by_key compact_herd compact_log compact_logs_by_key erase_where live_set matching
    """,
    "data_source": "register",
    "jobs": "Trouble",
    "materialize": "Materialized MaterializedLog MaterializeOptions latest_by_key",
    "outputs": "read_output",
    "run": "RunEvent RunOptions RunReport StageReport html_of run_forever run_pipeline",
    "session": "open_session",
    "read": "pinned_herd pinned_log read_herd read_log",
    "spark": "readable_spark_errors",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)

_OLD_MODULES = """
    audit herd_collect herd_scrub herd_verify merging output_reading reading report
"""
renamed_modules(
    {
        **{f"stratalog.pipeline.{old}": "stratalog.pipeline" for old in _OLD_MODULES.split()},
        "stratalog.pipeline.spark_errors": "stratalog.pipeline.spark",
    }
)

if not TYPE_CHECKING:  # a checker would believe that every name is there

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'stratalog.pipeline' has no attribute {name!r}")
        value = getattr(import_module(f"stratalog.pipeline.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
