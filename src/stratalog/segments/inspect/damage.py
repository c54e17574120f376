"""The kinds of damage in a data directory, each with its name, its meaning and its remedy.

The names are stable and meant for programs. A *remark* is something that refuses nothing: the next
opening repairs it by itself, ignores it, or keeps it aside. A directory with nothing but remarks is
clean.
"""

import enum
from dataclasses import asdict, dataclass
from typing import Self

_KEEP = "Keep the file. Restore the partition from another replica."
_PUT_BACK = "Put it back from a copy of this data directory, or restore from other replicas."
_NODE = "Keep the data directory. Restore this node's data from other replicas."
_NOTHING = "Nothing: the next opening makes it anew from the checkpoint."
_REPAIR = "`stratalog disk repair` says what can be saved. Or restore from other replicas."
_IGNORED = "Nothing: it counts for nothing."


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
    RECORD_MISSING = (
        "record-missing",
        "The WAL has what no record names, so records are lost: the node will not start.",
        _REPAIR,
    )
    CLOSED_DIFFERS = (
        "closed-differs",
        "The directory was closed cleanly, and a file was changed since: the node will not start.",
        _REPAIR,
    )
    WAL_DOUBTFUL = (
        "wal-doubtful",
        "The end of the WAL is a batch that a crash tore, or an acknowledged one that is damaged.",
        "The next opening keeps it aside. Look for its entries in other replicas.",
        True,
    )
    WAL_REST = (
        "wal-rest",
        "Behind the last batch of a WAL file are bytes of a write that failed, or damaged ones.",
        _IGNORED,
        True,
    )
    JOURNAL_DOUBTFUL = (
        "journal-doubtful",
        "The last record of the journal was torn by a crash, or is damaged, in all of its copies.",
        "The next opening keeps it aside.",
        True,
    )
    JOURNAL_REST = (
        "journal-rest",
        "The second copy of the journal's last record was torn by a crash, or is damaged.",
        _IGNORED,
        True,
    )
    JOURNAL_UNFINISHED = (
        "journal-unfinished",
        "A new journal was being begun; the one before counts.",
        _IGNORED,
        True,
    )
    DOUBT_KEPT = (
        "doubt-kept",
        "An opening or a repair has kept these bytes aside.",
        "Look at them, then remove them with `stratalog disk repair --accept-loss`.",
        True,
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
    """What the next opening repairs by itself, ignores, or keeps aside."""
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
