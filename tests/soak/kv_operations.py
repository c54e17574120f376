"""The one sequence of operations that all key–value stores of a soak are sent.

Operation ``n`` is a function of the seed and of ``n``, and becomes entry ``n`` of a store's log. So
whoever knows the last index of a store knows which values it must have and where they must lie.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from stratalog import IndexSet
from stratalog.segments import DiskOptions

KEYS = 200
DELETED_SHARE = 0.15
CHECKPOINT_EVERY = 60
OPTIONS = DiskOptions(
    wal_file_bytes=32 * 1024,
    segment_entries_max=100,
    segment_bytes_max=16 * 1024,
    major_after_minors=3,
)


def operation(seed: int, number: int) -> tuple[bytes, bytes | None]:
    """A key and its new value, or none if it is deleted."""
    random = Random(f"{seed}/{number}")
    key = b"key %d" % random.randrange(KEYS)
    if random.random() < DELETED_SHARE:
        return key, None
    return key, b"%d of %d " % (number, seed) * random.randrange(1, 40)


@dataclass
class Ledger:
    """What a store must hold after so many operations."""

    seed: int
    applied: int = 0
    values: dict[bytes, bytes] = field(default_factory=dict)
    places: dict[bytes, int] = field(default_factory=dict)

    def go_to(self, number: int) -> None:
        """Apply what comes up to an operation. There is no way back."""
        assert number >= self.applied
        for each in range(self.applied + 1, number + 1):
            key, value = operation(self.seed, each)
            if value is None:
                self.values.pop(key, None)
                self.places.pop(key, None)
            else:
                self.values[key], self.places[key] = value, each
        self.applied = number

    @property
    def live(self) -> IndexSet:
        return IndexSet.of(list(self.places.values()))
