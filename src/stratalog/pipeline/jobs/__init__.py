"""What every job over a herd shares: its logs, and the same work for each of them."""

from stratalog.pipeline.jobs.fan_out import (
    HERE_MAX,
    LOGS_AT_ONCE,
    LOGS_PER_TASK_MAX,
    Outcome,
    for_each_log,
    shares_of,
)
from stratalog.pipeline.jobs.logs import (
    LogRef,
    check_herd,
    find_logs,
    has_lost_manifest,
    open_root,
    place_of,
    resolve,
)
from stratalog.pipeline.jobs.option_rules import check_job_cursor, require
from stratalog.pipeline.jobs.trouble import Trouble

__all__ = [
    "HERE_MAX",
    "LOGS_AT_ONCE",
    "LOGS_PER_TASK_MAX",
    "LogRef",
    "Outcome",
    "Trouble",
    "check_herd",
    "check_job_cursor",
    "find_logs",
    "for_each_log",
    "has_lost_manifest",
    "open_root",
    "place_of",
    "require",
    "resolve",
    "shares_of",
]
