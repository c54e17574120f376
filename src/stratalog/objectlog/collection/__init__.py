"""Giving back space: what lies before the lowest cursor, and what nothing links."""

from stratalog.objectlog.collection.collector import (
    DEFAULT_OPTIONS,
    Collected,
    Collector,
    Outlook,
    collect,
)
from stratalog.objectlog.collection.delete_unreachable import OnRemoved, Removed
from stratalog.objectlog.collection.sweep_log import SweepProgress, SweepReport, sweep, sweep_noting
from stratalog.objectlog.collection.unlinked_objects import Amount, OnLeft, Survey
