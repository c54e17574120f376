"""One node's disk: a shared write-ahead log, segments, checkpoints with live indexes.

Disk          a data directory, open: partitions, their common WAL
Partition     the log of one partition: write, read, checkpoint, compact
Entries       a batch of entries; Entry is one
DiskOptions   limits, with sound defaults; MergeLimits are those of one partition's segments
inspect_disk  what a data directory holds, read-only and beside a running node; check_disk verifies
repair_disk   opens what was refused, and says first what would be given up

send_partition, receive_partition    copy a partition to another replica, over a Transport
"""

from stratalog.segments.disk import Disk
from stratalog.segments.format import Entries, Entry, Lineage
from stratalog.segments.inspect import (
    CheckReport,
    DiskDamage,
    DiskDamageKind,
    DiskReport,
    DoubtReport,
    PartitionReport,
    SegmentReport,
    WalReport,
    check_disk,
    inspect_disk,
)
from stratalog.segments.options import DiskOptions, MergeLimits
from stratalog.segments.partition import Partition, PartitionStatus
from stratalog.segments.repair import DiskLoss, RepairReport, repair_disk
from stratalog.segments.stats import DiskStats
from stratalog.segments.transfer import (
    MemoryTransport,
    StreamTransport,
    TransferOptions,
    TransferReport,
    Transport,
    receive_partition,
    send_partition,
)

__all__ = [
    "CheckReport",
    "Disk",
    "DiskDamage",
    "DiskDamageKind",
    "DiskLoss",
    "DiskOptions",
    "DiskReport",
    "DiskStats",
    "DoubtReport",
    "Entries",
    "Entry",
    "Lineage",
    "MemoryTransport",
    "MergeLimits",
    "Partition",
    "PartitionReport",
    "PartitionStatus",
    "RepairReport",
    "SegmentReport",
    "StreamTransport",
    "TransferOptions",
    "TransferReport",
    "Transport",
    "WalReport",
    "check_disk",
    "inspect_disk",
    "receive_partition",
    "repair_disk",
    "send_partition",
]
