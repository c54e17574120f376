"""Inspecting a data directory without opening it: its content, and its damage."""

from stratalog.segments.inspect.check import check_disk
from stratalog.segments.inspect.damage import CheckReport, DiskDamage, DiskDamageKind
from stratalog.segments.inspect.disk_snapshot import local_files
from stratalog.segments.inspect.info import (
    DiskReport,
    DoubtReport,
    PartitionReport,
    SegmentReport,
    WalReport,
    inspect_disk,
)
