"""What can be wrong with a herd as a whole: each kind by name, what it means, and what to do.

Damages of single logs keep the names that a scrub gives them (``objectlog.damage``).
"""

from dataclasses import dataclass

from stratalog.objectlog.check import Damage, DamageKind

MEANINGS = {
    "unreadable": (
        "The log, its cursor or its output could not be read, so nothing is shown about it.",
        "Look at the message; try again when the store answers.",
    ),
    "cursor-out-of-range": (
        "The compaction cursor does not lie between the log's first offset and its tail.",
        "Find out who moved it; move it to where the output is.",
    ),
    "output-ahead": (
        "The output claims to hold records that the log does not have yet.",
        "Find out who changed the log; restore it from a copy of the bucket.",
    ),
    "output-behind": (
        "The compaction cursor lies beyond the output: records may go that were never merged.",
        "Give each job a cursor of its own, and move this one back to the output.",
    ),
    "output-file": (
        "A file of the published output is missing, or is not as it was written.",
        "Restore it from a copy of the bucket, or materialize anew under another job name.",
    ),
    "unmarked": (
        "The log has records after its compaction cursor that no dirty log has a mark for.",
        "No roll-up finds them: append something through the herd, or materialize it by name.",
    ),
    "marks-unreadable": (
        "The marks of a server cannot be read, so logs that it wrote to may not be found.",
        "Scrub that dirty log; materialize the whole herd once.",
    ),
    "record": (
        "Records that describe themselves are missing, doubled or out of order.",
        "Stop and find out; `stratalog verify` of the log tells more.",
    ),
}
_TEXTS = {kind.value: (kind.meaning, kind.remedy) for kind in DamageKind} | MEANINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that does not hold."""

    kind: str
    log: str | None
    """The name of the log, or its id if that is all that is known. None for the herd itself."""

    detail: str

    @property
    def meaning(self) -> str:
        return _TEXTS[self.kind][0]

    @property
    def remedy(self) -> str:
        return _TEXTS[self.kind][1]

    def __str__(self) -> str:
        return f"{self.log or 'the herd'}: {self.kind}: {self.detail}"


def describe(damage: Damage) -> str:
    """A damage in one line."""
    parts = [damage.kind.value, damage.detail]
    if damage.expected is not None or damage.actual is not None:
        parts.append(f"expected {damage.expected}, found {damage.actual}")
    return ": ".join(filter(None, parts))
