"""What a Spark task reads: fragments of one log or of several, about as many bytes as the others.

A plan is made once, from a manifest. It travels to the tasks by pickle and names immutable objects
only, so what a query sees does not change while it runs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from stratalog.objectlog.stored import Fragment
from stratalog.objectlog.tree import Window

SPLIT_BYTES = 64 << 20
SPLIT_FRAGMENTS_MAX = 4096
EVERYTHING = Window()
OPEN_COST_BYTES = 1 << 20
"""What opening a fragment counts for beside its bytes: many small ones are split as well."""


@dataclass(frozen=True, slots=True)
class Part:
    """Neighbouring fragments of one log, and the window that was asked for."""

    url: str
    fragments: tuple[Fragment, ...]
    window: Window = EVERYTHING
    log: str | None = None
    """The name of the log in its herd."""

    @property
    def num_bytes(self) -> int:
        return sum(fragment.num_bytes for fragment in self.fragments)


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads, in this order."""

    parts: tuple[Part, ...]


def split_evenly(
    parts: Iterable[Part], split_bytes: int = SPLIT_BYTES, splits_min: int = 1
) -> list[Split]:
    """The same fragments in the same order, in splits of about ``split_bytes``.

    Small logs share a split and a large log has several. If there would be fewer than
    ``splits_min``, they are made smaller.
    """
    listed = [part for part in parts if part.fragments]
    weight = sum(map(_weight_of, (each for part in listed for each in part.fragments)))
    room = max(1, min(split_bytes, -(-weight // max(1, splits_min))))
    return list(_filled(listed, room))


def _filled(parts: list[Part], room: int) -> Iterator[Split]:
    taken: list[Part] = []
    weight = count = 0
    for part in parts:
        first = 0
        for index, fragment in enumerate(part.fragments):
            if count and (weight + _weight_of(fragment) / 2 > room or count >= SPLIT_FRAGMENTS_MAX):
                if index > first:
                    taken.append(replace(part, fragments=part.fragments[first:index]))
                yield Split(tuple(taken))
                taken, weight, count, first = [], 0, 0, index
            weight += _weight_of(fragment)
            count += 1
        taken.append(replace(part, fragments=part.fragments[first:]))
    if taken:
        yield Split(tuple(taken))


def _weight_of(fragment: Fragment) -> int:
    return fragment.num_bytes + OPEN_COST_BYTES
