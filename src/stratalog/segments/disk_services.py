"""What a partition asks of the disk that it lies on. The engine provides it."""

from __future__ import annotations

from typing import Protocol

from stratalog.segments.context import DiskContext
from stratalog.segments.maintenance import Checkpoints, Compactor
from stratalog.segments.read import Reader
from stratalog.segments.write_ahead import Journal, Wal


class DiskServices(Protocol):
    """The parts of a running disk that all its partitions share."""

    @property
    def context(self) -> DiskContext:
        """Options and counters."""

    @property
    def journal(self) -> Journal:
        """Says which files a partition has."""

    @property
    def wal(self) -> Wal:
        """Makes writes durable."""

    @property
    def reader(self) -> Reader:
        """Reads entries."""

    @property
    def checkpoints(self) -> Checkpoints:
        """Takes, receives and reads checkpoints."""

    @property
    def compactor(self) -> Compactor:
        """Runs major compactions."""

    def must_be_open(self) -> None:
        """``Closed`` after it was closed, ``Unavailable`` after a defect has stopped it."""
