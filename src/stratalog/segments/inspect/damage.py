"""The kinds of damage in a data directory, each with its name, its meaning and its remedy.

The names are stable and meant for programs. A *remark* is something that the next opening repairs
by itself. A directory with nothing but remarks is clean.
"""

import enum
from dataclasses import asdict, dataclass
from typing import Self

_KEEP = "Keep the file. Restore the partition from another replica."
_PUT_BACK = "Put it back from a copy of this data directory, or restore from other replicas."
_NODE = "Keep the data directory. Restore this node's data from other replicas."
_NOTHING = "Nothing: the next opening makes it anew from the checkpoint."


class DiskDamageKind(enum.Enum):
    """A kind of damage. Its value is its stable name."""

    meaning: str
    remedy: str
    is_remark: bool

    def __new__(cls, name: str, meaning: str, remedy: str, is_remark: bool = False) -> Self:
        kind = object.__new__(cls)
        kind._value_ = name
        kind.meaning = meaning
        kind.remedy = remedy
        kind.is_remark = is_remark
        return kind

    DISK_UNREADABLE = (
        "disk-unreadable",
        "The file DISK is missing or damaged, so nothing says whose files these are.",
        _PUT_BACK,
    )
    JOURNAL_UNREADABLE = (
        "journal-unreadable",
        "The journal is missing or damaged, so nothing says which files count.",
        _NODE,
    )
    FILE_MISSING = (
        "file-missing",
        "The journal names a file that is not there: the node will not start.",
        _PUT_BACK,
    )
    FILE_SIZE = (
        "file-size",
        "A file has another size than when it was named: the node will not start.",
        _PUT_BACK,
    )
    SEGMENT_UNREADABLE = (
        "segment-unreadable",
        "The head or the index of a segment is damaged: none of its entries can be read.",
        _KEEP,
    )
    SEGMENT_ENTRIES = (
        "segment-entries",
        "A segment lacks entries that the journal counts on.",
        _KEEP,
    )
    ENTRY_DAMAGED = (
        "entry-damaged",
        "The bytes of entries are not what was written; reading them raises Corrupt.",
        _KEEP,
    )
    WAL_UNREADABLE = (
        "wal-unreadable",
        "The head of a WAL file is damaged: the node will not start.",
        _NODE,
    )
    WAL_DAMAGED = (
        "wal-damaged",
        "A batch of the WAL is damaged and later ones are there: the node will not start.",
        _NODE,
    )
    WAL_GAP = (
        "wal-gap",
        "Batches are missing between two WAL files: the node will not start.",
        _NODE,
    )
    CHECKPOINT_UNREADABLE = (
        "checkpoint-unreadable",
        "The head, the description or the live set of a checkpoint is damaged.",
        _KEEP,
    )
    STATE_DAMAGED = (
        "state-damaged",
        "The state in a checkpoint is not what was written; asking for it raises Corrupt.",
        _KEEP,
    )
    LIVE_FILE_DIFFERS = (
        "live-file-differs",
        "The file with the live set is whole, but has another set than its checkpoint.",
        "Stop the node and remove the file: it is made anew from the checkpoint.",
    )
    SEQUENCE_GAP = (
        "sequence-gap",
        "Entries above the checkpoint are missing: the node will not start.",
        _KEEP,
    )
    LIVE_MISSING = (
        "live-missing",
        "Entries that the checkpoint needs are nowhere: the node will not start.",
        _KEEP,
    )
    LIVE_FILE_UNREADABLE = (
        "live-file-unreadable",
        "The file with the live set alone is missing or damaged. The checkpoint has it too.",
        _NOTHING,
        True,
    )


@dataclass(frozen=True, slots=True)
class DiskDamage:
    """One damage."""

    kind: DiskDamageKind
    path: str
    partition: str | None = None
    index: int | None = None
    """The first entry concerned."""
    count: int | None = None
    """The number of entries concerned."""
    byte: int | None = None
    """The position in the file."""
    detail: str = ""

    def to_dict(self) -> dict[str, object]:
        """For programs."""
        kind = self.kind
        facts = {**asdict(self), "kind": kind.value}
        return {**facts, "meaning": kind.meaning, "remedy": kind.remedy}


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check."""

    path: str
    damages: tuple[DiskDamage, ...]
    remarks: tuple[DiskDamage, ...]
    """Damage that the next opening repairs by itself."""
    leftovers: tuple[str, ...]
    partitions: int
    segments: int
    wals: int
    entries: int
    """The number of verified entries, in segments and in the WAL."""
    bytes: int
    """The number of bytes read."""
    gone: int
    """Files that a running node removed before they could be read."""

    @property
    def clean(self) -> bool:
        return not self.damages

    def to_dict(self) -> dict[str, object]:
        """For programs: nothing but what JSON has."""
        listed = {
            "damages": [each.to_dict() for each in self.damages],
            "remarks": [each.to_dict() for each in self.remarks],
            "leftovers": list(self.leftovers),
        }
        return {"path": self.path, "clean": self.clean, **asdict(self), **listed}
