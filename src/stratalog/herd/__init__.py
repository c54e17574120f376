"""Many logs in one place, and finding those that have work to do."""

from stratalog.herd.assignment import assign
from stratalog.herd.catalogue import CATALOGUE_TIMEOUT_S, Catalogue
from stratalog.herd.dirty_log import servers
from stratalog.herd.dirty_mark import Mark
from stratalog.herd.herd import DEFAULT_READER, Herd, HerdLog
from stratalog.herd.names import SIDES, check_name, dirty_store, is_name, log_store
from stratalog.herd.options import COMPACTION, HerdOptions, RollUpOptions
from stratalog.herd.rollup import DEFAULT_OPTIONS, ROLLUP_CURSOR, DirtyLog, RolledUp, roll_up
