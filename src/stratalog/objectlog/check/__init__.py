"""Whether a stored log is what was written: scrub, verify, and repair of what can be proven."""

from stratalog.objectlog.check.damage import Damage, DamageKind, about
from stratalog.objectlog.check.numbering import Numbers, Seen, Stretch, stretches_of
from stratalog.objectlog.check.rebuild_nodes import RepairReport, repair
from stratalog.objectlog.check.scrub_log import scrub
from stratalog.objectlog.check.scrub_read import Examined, examine_read, read_object, tree_of
from stratalog.objectlog.check.scrub_report import ScrubReport
from stratalog.objectlog.check.scrub_walk import TreeWalk, replacements_of
from stratalog.objectlog.check.tree_check import decode_leniently, examine_node_bytes
from stratalog.objectlog.check.verify_log import Check, VerifyReport, verify
