"""What a partition needs of the disk that it lies on. The engine provides it."""

from typing import Protocol

from stratalog.segments.context import DiskContext
from stratalog.segments.maintenance import Checkpoints, Compactor
from stratalog.segments.read import Reader
from stratalog.segments.write_ahead import Journal, Wal


class DiskServices(Protocol):
    """The parts of a running disk that all its partitions share."""

    context: DiskContext
    """Options and counters."""
    journal: Journal
    """Knows the files of each partition."""
    wal: Wal
    """Makes writes durable."""
    reader: Reader
    """Reads entries."""
    checkpoints: Checkpoints
    """Takes, installs and reads checkpoints."""
    compactor: Compactor
    """Runs major compactions."""

    def must_be_open(self) -> None:
        """``Closed`` after the disk was closed, ``Unavailable`` after a defect stopped it."""
