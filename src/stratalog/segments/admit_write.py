"""Admission: which writes a partition accepts, by the rules of its tail. Pure.

| previous index | epoch | result |
|---|---|---|
| is the tail | at least the tail's | accepted |
| is below the tail, and in the log | above the tail's | accepted; overwrites what lies above it |
| is below the tail | not above the tail's | `Conflict`, unless it repeats what is there |
| is unknown | any | `Conflict` once, then `NotHappened` until a write fits |

Contiguous and sparse writes follow the same rules: in a sparse write, the previous index is the one
before it in the sequence.
"""

from dataclasses import dataclass

from stratalog.errors import Conflict, Invalid, NotHappened
from stratalog.segments.format import Entries, Lineage, steps_of


@dataclass(slots=True)
class Tail:
    """The end of a partition's log, including writes in flight."""

    index: int = 0
    epoch: int = 0
    has_refused: bool = False
    """A write was refused because of a gap, and none has been accepted since."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Entries to be written after ``previous``, and whether that overwrites others."""

    previous: int
    entries: Entries
    overwrites: bool


def check_write(previous: int, entries: Entries, payload_bytes_max: int) -> None:
    """``Invalid`` if no log could accept it."""
    if not len(entries):
        raise Invalid("a write has at least one entry")
    if previous < 0 or entries.first <= previous:
        raise Invalid(
            f"entries that begin at {entries.first} do not follow {previous}",
            hint="The previous index is the one before the first entry in the sequence.",
        )
    if entries.payload_bytes > payload_bytes_max:
        raise Invalid(
            f"a write of {entries.payload_bytes} bytes is larger than {payload_bytes_max}",
            hint="Split it, or raise write_bytes_max.",
            expected=payload_bytes_max,
            actual=entries.payload_bytes,
        )


def without_checkpointed(
    previous: int, entries: Entries, checkpoint: int, lineage: Lineage
) -> tuple[int, Entries]:
    """The write without entries that the checkpoint covers: they are dead, or here already.

    ``Conflict`` if the checkpoint was made from other epochs: these are two histories.
    """
    if previous >= checkpoint or entries.first > checkpoint:
        return previous, entries
    known, above = entries.up_to(checkpoint), entries.above(checkpoint)
    if len(known) + len(above) != len(entries) or not lineage.numbered(known.heads):
        raise Conflict(
            f"entries up to {known.last} were numbered under other epochs than those that the "
            f"checkpoint at {checkpoint} was made from",
            hint="Another writer took over under a newer epoch, or these are two histories.",
            expected=lineage.up_to(checkpoint).steps,
            actual=steps_of(known.heads),
        )
    return checkpoint, above


def admit(
    tail: Tail, previous: int, entries: Entries, checkpoint: int, *, is_known: bool
) -> Admitted:
    """Admit a write and move the tail. ``is_known``: the previous index is in the log."""
    if previous == tail.index:
        if entries.first_epoch < tail.epoch:
            raise _older_epoch(tail, entries)
        admitted = Admitted(previous, entries, overwrites=False)
    elif previous > tail.index or not is_known:
        raise _unknown(tail, previous)
    elif entries.first_epoch <= tail.epoch:
        raise Conflict(
            f"there are entries above {previous} already, up to {tail.index} in epoch {tail.epoch}",
            hint="Continue after the log's last index, or overwrite under a newer epoch.",
            expected=tail.index,
            actual=previous,
        )
    elif previous < checkpoint:
        raise Conflict(
            f"entries up to {checkpoint} are part of a checkpoint and cannot be overwritten",
            hint="Continue after the checkpoint.",
            expected=checkpoint,
            actual=previous,
        )
    else:
        admitted = Admitted(previous, entries, overwrites=True)
    tail.index, tail.epoch, tail.has_refused = entries.last, entries.last_epoch, False
    return admitted


def _unknown(tail: Tail, previous: int) -> NotHappened:
    if tail.has_refused:
        kind, message = NotHappened, f"dropped after a gap: what follows {previous} does not fit"
    else:
        kind, message = Conflict, f"a gap: the log does not have {previous}"
    tail.has_refused = True
    return kind(
        f"{message}, and ends at {tail.index}",
        hint=f"Send again what comes after {tail.index}.",
        expected=tail.index,
        actual=previous,
    )


def _older_epoch(tail: Tail, entries: Entries) -> Conflict:
    return Conflict(
        f"the log is in epoch {tail.epoch}, and the write in the older {entries.first_epoch}",
        hint="Another writer took over under a newer epoch. Find out who writes now.",
        expected=tail.epoch,
        actual=entries.first_epoch,
    )
