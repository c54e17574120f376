"""Logs that come from others: forks, copies, successors of sealed logs. And the end of a log."""

from stratalog.objectlog.branch.copy import Copied, CopyProgress, copy_log
from stratalog.objectlog.branch.destroy_log import DestroyReport, destroy
from stratalog.objectlog.branch.fork_log import Forked, fork
from stratalog.objectlog.branch.seal_log import Sealer
