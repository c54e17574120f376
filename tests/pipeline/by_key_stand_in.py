"""Compaction by key for tests of those who call it, where the real one is not built yet.

It has the signature of ``stratalog.pipeline.by_key`` and drops what that drops, log by log.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from stratalog.errors import StratalogError
from stratalog.herd.names import log_store
from stratalog.objectlog.options import CompactOptions
from stratalog.pipeline.compacted_logs import ByKey, CompactedLog, CompactedLogs
from stratalog.pipeline.log_compact import compact_log
from stratalog.pipeline.materialized import Trouble
from stratalog.pipeline.watching import OnTasks
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact_logs_by_key(
    spark: SparkSession,
    root_url: str,
    rule: ByKey,
    *,
    log_ids: Sequence[str],
    incremental: bool = True,
    options: CompactOptions,
    on_progress: OnTasks | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> CompactedLogs:
    query = f"SELECT max(offset) FROM log GROUP BY {rule.key_sql}"
    logs: list[CompactedLog] = []
    troubles: list[Trouble] = []
    for log_id in log_ids:
        url = log_store(open_store(root_url), log_id).url
        try:
            done = compact_log(spark, url, query, options=options)
        except StratalogError as error:
            troubles.append(Trouble(log_id, error))
            continue
        logs.append(
            CompactedLog(
                log=None,
                log_id=log_id,
                up_to=done.up_to,
                read=0,
                live=0,
                records=done.records,
                fragments=done.fragments,
                rewritten=done.rewritten,
                bytes_before=done.bytes_before,
                bytes_after=done.bytes_after,
                objects=0,
            )
        )
    return CompactedLogs(
        looked_at=len(log_ids), logs=tuple(logs), gone=0, troubles=tuple(troubles), seconds=0.0
    )


def module() -> ModuleType:
    """The module that is asked for, with the function above."""
    made = ModuleType("stratalog.pipeline.by_key")
    made.compact_logs_by_key = compact_logs_by_key  # type: ignore[attr-defined]
    return made
