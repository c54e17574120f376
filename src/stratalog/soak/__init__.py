"""Soaking a log: write, read and maintain it for a while, and account for every record."""

from stratalog.soak.engine import soak
from stratalog.soak.history import History
from stratalog.soak.ledger import Violation
from stratalog.soak.options import SoakOptions
from stratalog.soak.report import Figures, SoakReport
from stratalog.soak.writers import OpenWriter, SoakWriter
