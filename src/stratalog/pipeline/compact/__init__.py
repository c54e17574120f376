"""Compaction on Spark: by key, by query, by policy; and erasure by query."""

from stratalog.pipeline.compact.apply_verdict import CompactedLog, CompactedLogs
from stratalog.pipeline.compact.by_key import compact_by_key, compact_logs_by_key
from stratalog.pipeline.compact.by_policy import (
    HerdCompact,
    HerdCompactOptions,
    LogRetained,
    compact_herd,
)
from stratalog.pipeline.compact.by_query import compact_log, live_set
from stratalog.pipeline.compact.erase import erase_where, matching
from stratalog.pipeline.compact.key_rule import GRACE_S, ByKey
from stratalog.pipeline.compact.policy_sql import check_policy
from stratalog.pipeline.compact.rewrite_tasks import rewriting_in_tasks
