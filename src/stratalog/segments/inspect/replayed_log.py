"""The log of a partition as a node would find it: its files, and what the WAL adds to them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from stratalog.indexset import EMPTY
from stratalog.segments.format import Batch, Checkpoint, Entries, Layout, Lineage, WalFile
from stratalog.segments.inspect.disk_snapshot import DiskSnapshot
from stratalog.segments.read import DurableLog


@dataclass(slots=True)
class _LayoutCopy:
    """The layout of a disk that is only inspected."""

    layout: Layout

    def amend(self, change: Callable[[Layout], Layout]) -> None:
        self.layout = change(self.layout)


class ReplayedLog(DurableLog):
    """A log that is inspected, not opened: what is missing is reported instead of raised."""

    def __init__(self, found: DiskSnapshot, number: int) -> None:
        """The files alone. If the checkpoint is unreadable, live set and lineage are empty.

        ``Corrupt`` if entries are missing between the files.
        """
        layout = found.layout.partitions[number]
        checkpoint = found.checkpoints.get(number)
        if not isinstance(checkpoint, Checkpoint):
            named = layout.checkpoint
            checkpoint = Checkpoint(named.index, EMPTY, Lineage(), 0, 0) if named else None
        super().__init__(_LayoutCopy(found.layout), number, layout.name, checkpoint)

    @property
    def first(self) -> int:
        return self._first

    def find_lineage(self) -> None:
        """After all WAL files: only then is it known which entries of the files count."""
        self._find_lineage()


def replay_batches(logs: Mapping[int, ReplayedLog], wal: WalFile, found: Sequence[Batch]) -> int:
    """Add the batches of a WAL file to the logs. Returns the number of their entries.

    Payloads are left out: only indexes and epochs are inspected.
    """
    count = 0
    for section in (section for batch in found for section in batch.sections):
        heads = section.entries.heads
        count += len(heads)
        if section.partition in logs:
            bare = replace(section, entries=Entries(heads, (b"",) * len(heads)))
            logs[section.partition].replay(wal.number, bare, wal.path)
    return count
