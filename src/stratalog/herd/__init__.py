"""Many logs in one place, and finding those that have work to do."""

from stratalog.herd.assignment import assign
from stratalog.herd.herd import Herd, HerdLog
from stratalog.herd.mark import Mark
from stratalog.herd.options import HerdOptions, RollUpOptions
from stratalog.herd.rollup import DirtyLog, RolledUp, roll_up

__all__ = [
    "DirtyLog",
    "Herd",
    "HerdLog",
    "HerdOptions",
    "Mark",
    "RollUpOptions",
    "RolledUp",
    "assign",
    "roll_up",
]
