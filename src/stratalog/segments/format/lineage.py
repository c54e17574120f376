"""The lineage of a log: the epochs under which it was numbered, each with its first index.

    steps (1, epoch 1) (1001, epoch 2) (1501, epoch 4)

An epoch has one writer, which assigns an index once. So an index and an epoch identify one entry,
and a replica cuts off its log where its lineage leaves the source's, without comparing entries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stratalog.errors import Corrupt
from stratalog.indexset import INDEX_MAX, IndexSet
from stratalog.segments.format.entries import Heads, ends_of


@dataclass(frozen=True, slots=True)
class Lineage:
    """Immutable. ``steps`` are pairs of a first index and an epoch, both ascending."""

    steps: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for (index, epoch), (next_index, next_epoch) in pairwise(self.steps):
            if next_index <= index or next_epoch <= epoch:
                raise Corrupt(f"a lineage does not ascend: {self.steps}")

    @property
    def last_epoch(self) -> int:
        """0 if there is none yet."""
        return self.steps[-1][1] if self.steps else 0

    def epoch_of(self, index: int) -> int:
        """The epoch of an index at or after the first; 0 before it."""
        place = bisect_right(self.steps, index, key=lambda step: step[0])
        return self.steps[place - 1][1] if place else 0

    def up_to(self, index: int) -> Lineage:
        """The lineage of the log up to an index."""
        return Lineage(tuple(step for step in self.steps if step[0] <= index))

    def after(self, previous: int, added: Iterable[tuple[int, int]]) -> Lineage:
        """The lineage when ``added`` replaces everything above ``previous``.

        The first step may continue the epoch that is there already.
        """
        steps = list(self.up_to(previous).steps)
        for index, epoch in added:
            if not steps or steps[-1][1] != epoch:
                steps.append((index, epoch))
        return Lineage(tuple(steps))

    def shared_with(self, source: Lineage, known: IndexSet, source_last: int) -> int:
        """The highest index up to which all ``known`` indexes have the source's epoch.

        Steps are not compared: a log with only some of the source's entries cannot know where an
        epoch began between two of them.
        """
        theirs = source._ranges()
        common = [
            range(max(own.start, theirs[epoch].start), min(own.stop, theirs[epoch].stop))
            for epoch, own in self._ranges().items()
            if epoch in theirs
        ]
        foreign = known - IndexSet(*common).limit(source_last)
        return (known.last or 0) if foreign.first is None else foreign.first - 1

    def numbered(self, heads: Heads) -> bool:
        """Whether all these entries have the epoch of their index in this lineage."""
        starts = np.array([index for index, _ in self.steps], dtype=np.uint64)
        epochs = np.array([0, *(epoch for _, epoch in self.steps)], dtype=np.uint64)
        places = np.searchsorted(starts, heads["index"], side="right")
        if not bool((places > 0).all() and (epochs[places] == heads["epoch"]).all()):
            return False
        # An entry belongs to one epoch wholly.
        return bool((np.searchsorted(starts, ends_of(heads), side="right") == places).all())

    def _ranges(self) -> dict[int, range]:
        """The indexes of each epoch. The newest is unbounded."""
        limits = [*(index for index, _ in self.steps[1:]), INDEX_MAX + 1]
        return {
            epoch: range(start, limit)
            for (start, epoch), limit in zip(self.steps, limits, strict=False)
        }


def steps_of(heads: Heads) -> tuple[tuple[int, int], ...]:
    """The first index of each epoch among entries."""
    if not len(heads):
        return ()
    epochs = heads["epoch"]
    places = np.append(0, np.flatnonzero(epochs[1:] != epochs[:-1]) + 1)
    return tuple(zip(heads["index"][places].tolist(), epochs[places].tolist(), strict=True))
