"""What every job over a herd shares: its logs, and the same work for each of them."""

from stratalog.pipeline.jobs.herd_job import HERE_MAX, LOGS_AT_ONCE, LOGS_PER_TASK_MAX, HerdJob
from stratalog.pipeline.jobs.logs import (
    LogRef,
    check_alive,
    check_herd,
    find_logs,
    has_lost_manifest,
    place_of,
    resolve,
)
from stratalog.pipeline.jobs.option_rules import check_job, check_names, require
from stratalog.pipeline.jobs.results import Counted, Dropped, Held, Trouble
