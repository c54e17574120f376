"""What can be wrong with a stored log: each kind by name, what it means, and what to do.

The names are stable and meant for programs. A *remark* is worth knowing and costs no record; a log
with nothing but remarks is clean.
"""

from __future__ import annotations

import enum

import msgspec

from stratalog.objectlog.stored import Entry

_KEEP = "Keep the object as it is, and restore it from a copy of the bucket if there is one."
_REPAIR = "Let `repair` rebuild it from its fragments, or restore it from a copy of the bucket."
_STOP = "Stop the writers and look at who changed it; restore it from a copy of the bucket."
_REMEDY_OF = {"manifest": _STOP, "sequence": _STOP, "snapshot": _REPAIR, "fragment": _KEEP}
"""What to do, by what the name of a kind begins with, unless the kind says otherwise."""


class DamageKind(enum.Enum):
    """A kind of damage. Its value is its stable name."""

    meaning: str
    remedy: str
    is_remark: bool

    def __new__(
        cls, name: str, meaning: str, remedy: str = "", is_remark: bool = False
    ) -> DamageKind:
        kind = object.__new__(cls)
        kind._value_ = name
        kind.meaning = meaning
        kind.remedy = remedy or _REMEDY_OF[name.partition("-")[0]]
        kind.is_remark = is_remark
        return kind

    MANIFEST_MISSING = (
        "manifest-missing",
        "There are fragments but no manifest, so nothing says which of them belong to the log.",
    )
    MANIFEST_UNREADABLE = (
        "manifest-unreadable",
        "The manifest cannot be decoded, so nothing says which fragments belong to the log.",
    )
    MANIFEST_DIGEST = (
        "manifest-digest",
        "The manifest does not hold the bytes that were stored, although its sums hold.",
    )
    MANIFEST_SUM = (
        "manifest-sum",
        "The root's entries and what was collected do not add up to the log's setsum.",
    )
    MANIFEST_RANGE = (
        "manifest-range",
        "The root's entries leave a gap, overlap, span nothing, or miss the log's beginning.",
    )
    MANIFEST_TIME = (
        "manifest-time",
        "The root's entries go back in time, so seeking by time may miss records.",
    )
    MANIFEST_BYTES = (
        "manifest-bytes",
        "The manifest counts fewer bytes than its entries link.",
    )
    SEQUENCE_GAP = (
        "sequence-gap",
        "The fragment's number does not follow its neighbour's: one was lost or moved.",
    )
    SNAPSHOT_MISSING = (
        "snapshot-missing",
        "An inner node is gone; the records below it may be there but cannot be found.",
    )
    SNAPSHOT_UNREADABLE = (
        "snapshot-unreadable",
        "An inner node cannot be decoded; the records below it cannot be found.",
    )
    SNAPSHOT_DIGEST = (
        "snapshot-digest",
        "An inner node does not hold the bytes that were stored, although its sums hold.",
    )
    SNAPSHOT_EMPTY = (
        "snapshot-empty",
        "An inner node has no children; the records below it cannot be found.",
    )
    SNAPSHOT_SUM = (
        "snapshot-sum",
        "A node's children do not add up to the setsum that the node above promises.",
    )
    SNAPSHOT_RANGE = (
        "snapshot-range",
        "A node's children leave a gap, overlap, or span other offsets than promised.",
    )
    SNAPSHOT_TIME = (
        "snapshot-time",
        "A node's children go back in time or have other times than promised.",
    )
    SNAPSHOT_DEPTH = (
        "snapshot-depth",
        "A node is deeper than promised, or not deeper than its children.",
    )
    SNAPSHOT_PATH = (
        "snapshot-path",
        "A node's name is not its own, or is no legal name: it may be another node.",
    )
    SNAPSHOT_BYTES = (
        "snapshot-bytes",
        "A node's children have other sizes together than promised.",
    )
    FRAGMENT_MISSING = (
        "fragment-missing",
        "The log links this fragment, but it is gone, and its records with it.",
        "Restore it from a copy of the bucket.",
    )
    FRAGMENT_SIZE = (
        "fragment-size",
        "The stored object has another size than it was written with: truncated or replaced.",
    )
    FRAGMENT_DIGEST = (
        "fragment-digest",
        "The object does not hold the bytes that were stored, although its records add up.",
    )
    FRAGMENT_DECODED_SIZE = (
        "fragment-decoded-size",
        "The object would be decoded to more than a fragment of its size can hold.",
    )
    FRAGMENT_UNREADABLE = (
        "fragment-unreadable",
        "The object cannot be read as Parquet: truncated, overwritten, or its bytes flipped.",
    )
    FRAGMENT_COLUMNS = (
        "fragment-columns",
        "The object is Parquet with other columns than a fragment: something else took its name.",
    )
    FRAGMENT_COUNT = (
        "fragment-count",
        "The fragment holds another number of records than its entry says.",
    )
    FRAGMENT_OFFSETS = (
        "fragment-offsets",
        "The fragment holds records of other places: perhaps it was exchanged with another.",
    )
    FRAGMENT_TIME = (
        "fragment-time",
        "The fragment's records have other times than its entry says.",
    )
    FRAGMENT_SUM = (
        "fragment-sum",
        "The records do not add up to their setsum: at least one was changed.",
    )
    FRAGMENT_PATH = (
        "fragment-path",
        "The fragment's name does not belong to its sequence number, or is no legal name.",
        _STOP,
    )
    OBJECT_REFUSED = (
        "object-refused",
        "The store does not give this object, although it answers for others.",
        "Check the permissions of this object and the disk below it, then scrub again.",
    )
    CURSOR_UNREADABLE = (
        "cursor-unreadable",
        "A cursor is not what was stored, so collection cannot know what it holds back.",
        "Find out which reader it belongs to, and write it anew where that reader stands.",
    )
    PIN_UNREADABLE = (
        "pin-unreadable",
        "A pin is not what was stored, so nobody knows what it holds, and nothing can be deleted.",
        "Find out who holds it. If nobody does, remove the object; then collection goes on.",
    )
    PLAN_UNREADABLE = (
        "plan-unreadable",
        "The plan of a collection is not what was stored, so nobody can finish or cancel it.",
        "Keep it and find out who changed it; collection stops until it is readable.",
    )
    POLICY_UNREADABLE = (
        "policy-unreadable",
        "The policy is not what was stored, so nobody knows what is to be kept.",
        "Set it anew with `stratalog policy set`, or remove the object.",
    )
    STAGE_UNREADABLE = (
        "stage-unreadable",
        "An upload guard is not what was stored, so nothing can be swept.",
        "Find out whose job it is. If that has ended, remove the object; then the sweep goes on.",
    )
    CERTIFICATE_UNREADABLE = (
        "certificate-unreadable",
        "The certificate of an erasure is not what was stored.",
        "Restore it from the copy that was given away, or from a copy of the bucket.",
    )
    INDEX_UNREADABLE = (
        "index-unreadable",
        "The key index is not what was stored. It is a cache: the next compaction makes it anew.",
        "Nothing needs to be done.",
        True,
    )
    SINGLE_CHILD = (
        "single-child",
        "A node has a single child, as wal3 leaves them. Nothing is wrong with it.",
        "Nothing needs to be done.",
        True,
    )
    SHALLOW_FIRST = (
        "shallow-first",
        "An entry stands before a deeper one. Reading is not affected.",
        "Nothing needs to be done.",
        True,
    )
    CURSOR_BELOW_START = (
        "cursor-below-start",
        "A cursor lies below the log's start. It holds nothing back.",
        "Move it to the log's start, or delete it if its reader is gone.",
        True,
    )


class Damage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One damage. ``start`` and ``limit`` are the offsets concerned, if it concerns some.

    ``base`` is the URL of the log that owns the object, if that is another one.
    """

    kind: DamageKind
    path: str
    base: str | None = None
    start: int | None = None
    limit: int | None = None
    expected: int | str | None = None
    actual: int | str | None = None
    detail: str = ""

    @property
    def is_remark(self) -> bool:
        """Whether it costs no record."""
        return self.kind.is_remark

    @property
    def identity(self) -> tuple[object, ...]:
        """The same for what is found twice, also if the object was rewritten in between."""
        return (self.kind, self.path, self.base, self.start, self.limit)

    def to_dict(self) -> dict[str, object]:
        """Everything that is known about it, ready for JSON."""
        return {
            **msgspec.structs.asdict(self),
            "kind": self.kind.value,
            "remark": self.is_remark,
            "meaning": self.kind.meaning,
            "remedy": self.kind.remedy,
        }


def about(
    kind: DamageKind,
    entry: Entry,
    *,
    expected: int | str | None = None,
    actual: int | str | None = None,
    detail: str = "",
) -> Damage:
    """A damage of the object that an entry links."""
    return Damage(
        kind=kind,
        path=entry.path,
        base=entry.base,
        start=entry.start.offset,
        limit=entry.limit.offset,
        expected=expected,
        actual=actual,
        detail=detail,
    )
