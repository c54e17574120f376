"""What a scrub found, so far or in the end: a value that can be stored and resumed from."""

from __future__ import annotations

import msgspec

from stratalog.errors import Invalid
from stratalog.objectlog.check.damage import Damage
from stratalog.objectlog.stored import FIRST_OFFSET


class ScrubReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a scrub. Everything below ``next_offset`` was examined."""

    url: str
    first_offset: int = FIRST_OFFSET
    """Where it began."""

    next_offset: int = FIRST_OFFSET
    """Where it goes on when it is resumed."""

    limit_offset: int = FIRST_OFFSET
    """Where the log ended when the scrub began."""

    fragments: int = 0
    snapshots: int = 0
    records: int = 0
    num_bytes: int = 0
    """What was read and examined."""

    damages: tuple[Damage, ...] = ()
    remarks: tuple[Damage, ...] = ()
    """What is unusual and costs no record."""

    finished: bool = False

    @property
    def clean(self) -> bool:
        """Whether all of the log was examined and nothing is damaged."""
        return self.finished and not self.damages

    def to_dict(self) -> dict[str, object]:
        """Everything, ready for JSON; each damage with what it means and what to do."""
        return {
            **msgspec.structs.asdict(self),
            "clean": self.clean,
            "damages": [damage.to_dict() for damage in self.damages],
            "remarks": [remark.to_dict() for remark in self.remarks],
        }

    def to_json(self) -> bytes:
        """The same as bytes. ``from_json`` reads them."""
        return msgspec.json.encode(self.to_dict())

    @classmethod
    def from_json(cls, data: bytes) -> ScrubReport:
        """A report that was stored, to be resumed. ``Invalid`` if it is none."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (ValueError, RecursionError) as error:
            raise Invalid(
                f"not the report of a scrub: {error}",
                hint="Give the file of an interrupted scrub, or begin anew without it.",
            ) from None
