"""The tree below a manifest: walking it, and what the next manifest should be. Mostly pure."""

from stratalog.objectlog.tree.amend_manifest import (
    Change,
    amend,
    check_amendment,
    is_version,
    manifest_document,
    raise_epoch,
)
from stratalog.objectlog.tree.bulk_link import Grafted, graft
from stratalog.objectlog.tree.collection_plan import plan_collection
from stratalog.objectlog.tree.compaction_check import check_compaction
from stratalog.objectlog.tree.delete_unreachable import (
    DELETE_BATCH,
    OnProgress,
    Removal,
    Removed,
    delete_surely,
)
from stratalog.objectlog.tree.filter_rows import Survivors, joined, survivors_of
from stratalog.objectlog.tree.fold import (
    Rollup,
    RollupPlan,
    apply_rollup,
    children_of,
    make_snapshot,
    plan_rollup,
)
from stratalog.objectlog.tree.link_fragments import (
    Verdict,
    judge,
    link,
    note_linked,
    only_the_past_changed,
)
from stratalog.objectlog.tree.plan_check import check_plan
from stratalog.objectlog.tree.prefix import Prefix, prefix_of
from stratalog.objectlog.tree.reach import Reach, Root
from stratalog.objectlog.tree.repack import Loose, opened, packed
from stratalog.objectlog.tree.retention import Cut, find_retention_cut
from stratalog.objectlog.tree.rewrite_groups import Candidate, Group, group, neighbourhoods
from stratalog.objectlog.tree.settle import judge_by_owner
from stratalog.objectlog.tree.split_fragment import encode_part
from stratalog.objectlog.tree.trim_tree import Unloaded
from stratalog.objectlog.tree.walk import Tree, Window, cut, key_of, missing

__all__ = [
    "DELETE_BATCH",
    "Candidate",
    "Change",
    "Cut",
    "Grafted",
    "Group",
    "Loose",
    "OnProgress",
    "Prefix",
    "Reach",
    "Removal",
    "Removed",
    "Rollup",
    "RollupPlan",
    "Root",
    "Survivors",
    "Tree",
    "Unloaded",
    "Verdict",
    "Window",
    "amend",
    "apply_rollup",
    "check_amendment",
    "check_compaction",
    "check_plan",
    "children_of",
    "cut",
    "delete_surely",
    "encode_part",
    "find_retention_cut",
    "graft",
    "group",
    "is_version",
    "joined",
    "judge",
    "judge_by_owner",
    "key_of",
    "link",
    "make_snapshot",
    "manifest_document",
    "missing",
    "neighbourhoods",
    "note_linked",
    "only_the_past_changed",
    "opened",
    "packed",
    "plan_collection",
    "plan_rollup",
    "prefix_of",
    "raise_epoch",
    "survivors_of",
]
