"""Compaction: dropping the records that no longer live, without renumbering any other."""

from stratalog.objectlog.compaction.compact_log import (
    DEFAULT_OPTIONS,
    STAGE_NOTE,
    Compacted,
    Compactor,
    Intent,
    Known,
    compact,
)
from stratalog.objectlog.compaction.relink import Replaced
from stratalog.objectlog.compaction.rewrite import OnProgress, Rewrite, Rewriter
from stratalog.objectlog.compaction.rewrite_groups import Group
