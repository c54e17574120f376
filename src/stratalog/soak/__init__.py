"""Soaking a log: writing, reading and looking after it for a while, with proof of every record."""

from stratalog.soak.engine import soak
from stratalog.soak.history import History
from stratalog.soak.ledger import Violation
from stratalog.soak.options import SoakOptions
from stratalog.soak.report import Figures, SoakReport
from stratalog.soak.writers import OpenWriter, SoakWriter

__all__ = [
    "Figures",
    "History",
    "OpenWriter",
    "SoakOptions",
    "SoakReport",
    "SoakWriter",
    "Violation",
    "soak",
]
