"""The tree below a manifest: walking it, and what the next manifest should be. Mostly pure."""

from stratalog.objectlog.tree.amend_manifest import (
    Change,
    amend,
    check_amendment,
    is_version,
    manifest_document,
)
from stratalog.objectlog.tree.deletion import DELETE_BATCH, delete_surely
from stratalog.objectlog.tree.filter_rows import Survivors, joined, survivors_of
from stratalog.objectlog.tree.fold import (
    Fold,
    FoldPlan,
    apply_fold,
    children_of,
    evenly,
    make_snapshot,
    plan_fold,
)
from stratalog.objectlog.tree.gone_object import Reloads, missing, on_newest_tree
from stratalog.objectlog.tree.link_fragments import graft, link, remembers_all
from stratalog.objectlog.tree.load_nodes import Nodes, children_in, with_nodes
from stratalog.objectlog.tree.retention import RetentionLimits, find_retention_cut
from stratalog.objectlog.tree.seek_window import Window, cut
from stratalog.objectlog.tree.settle import (
    Verdict,
    has_happened,
    judge,
    only_the_past_changed,
    overtaken_by,
    put_linked,
)
from stratalog.objectlog.tree.walk import Tree, key_of
