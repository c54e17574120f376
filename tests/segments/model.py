"""What a node's disk has promised: plain dictionaries, and the changes whose outcome is open.

A change is *pending* from its call to its answer. It becomes fact when it is acknowledged, and is
forgotten when an error says that it did not happen. ``Unknown``, or a crash, leaves it open: then
the disk may show it or not, wholly, and of the writes of one partition only a beginning. What the
disk shows after that is the fact from then on.

A *group* is a write of several partitions and a note: of one that is open, the disk shows all or
nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from stratalog.indexset import EMPTY, IndexSet

Stored = tuple[int, bytes, int]
"""Epoch, payload, span."""
Log = dict[int, Stored]
"""By the first index of each."""


def end_of(log: Mapping[int, Stored]) -> int:
    """The last index that is covered."""
    last = max(log, default=0)
    return last + log[last][2] - 1 if last else 0


def ends(log: Mapping[int, Stored]) -> list[int]:
    """The last index of each entry, ascending."""
    return [index + log[index][2] - 1 for index in sorted(log)]


class BrokenPromise(AssertionError):
    """The disk does not show what it has acknowledged."""


@dataclass(eq=False)
class Written:
    """Entries that replace everything above an index. None at all: it is only cut off."""

    previous: int
    entries: tuple[tuple[int, int, bytes, int], ...] = ()
    """Index, epoch, payload, span of each."""
    is_unknown: bool = False
    """The answer was ``Unknown``: a restart may show it, as long as nothing was written since."""


@dataclass(frozen=True)
class Checkpointed:
    """A state, and what lives at or below its index."""

    index: int = 0
    live: IndexSet = EMPTY
    state: bytes | None = None


@dataclass
class PartitionModel:
    """One partition as it was acknowledged, and what is open."""

    log: Log = field(default_factory=dict)
    """All that was written and not overwritten, dead or not."""
    checkpoint: Checkpointed = field(default_factory=Checkpointed)
    writes: list[Written] = field(default_factory=list)
    """Pending, in the order of their calls."""
    checkpoints: list[Checkpointed] = field(default_factory=list)
    """Pending."""
    creations: int = 0
    """How often it was made, or is just being made."""
    is_here: bool = True
    is_open: bool = False
    """Its creation or its removal is pending."""
    is_unknown: bool = False
    """The answer to that was ``Unknown``."""

    @property
    def last(self) -> int:
        return max(end_of(self.log), self.checkpoint.index)

    def is_alive(self, index: int) -> bool:
        """Whether the entry that begins there is needed."""
        return needs(self.checkpoint, index, self.log[index])

    def living(self, index: int) -> int:
        """An index of the entry that begins there, that a checkpoint may name."""
        span = range(index, index + self.log[index][2])
        below = None if span[-1] > self.checkpoint.index else self.checkpoint.live.within(span)
        return index if below is None else below.last or index

    def acknowledge(self, written: Written) -> None:
        """What nobody knew of before it can never show up again, if it went to the disk."""
        place = self.writes.index(written)
        after = applied(self.log, written, self.checkpoint)
        is_new = after != self.log
        self.writes = [
            each
            for at, each in enumerate(self.writes)
            if at > place or (at < place and not (is_new and each.is_unknown))
        ]
        self.log = after

    def forget(self, written: Written) -> None:
        self.writes = [each for each in self.writes if each is not written]

    def check(self, shown: Shown, *, settles: bool) -> None:
        """Whether it can be so. ``settles``: then that is the outcome of all that was open."""
        for log in self._logs():
            for checkpoint in (self.checkpoint, *self.checkpoints):
                if shown.is_explained_by(log, checkpoint):
                    if settles:
                        self.log, self.checkpoint = log, checkpoint
                        self.writes, self.checkpoints = [], []
                    return
        raise BrokenPromise(
            f"it shows {shown},\nbut it promised {self.log}\nabove {self.checkpoint},\n"
            f"pending are {self.writes} and {self.checkpoints}"
        )

    def _logs(self) -> Iterator[Log]:
        log = chain = self.log
        yield log
        for written in self.writes:
            if written.is_unknown:
                chain = applied(chain, written, self.checkpoint)
                yield chain
                yield applied(log, written, self.checkpoint)
            else:
                log = chain = applied(log, written, self.checkpoint)
                yield log


@dataclass(frozen=True)
class Shown:
    """What a partition was found to hold."""

    log: Mapping[int, Stored]
    checkpoint: Checkpointed
    last: int
    epoch: int

    def is_explained_by(self, log: Log, checkpoint: Checkpointed) -> bool:
        """Everything needed is there, and nothing that was never written or is overwritten."""
        needed = {index for index, entry in log.items() if needs(checkpoint, index, entry)}
        last = max(end_of(log), checkpoint.index)
        return (
            self.checkpoint == checkpoint
            and self.last == last
            and needed <= self.log.keys()
            and all(log.get(index) == entry for index, entry in self.log.items())
            and (last != end_of(log) or not log or self.epoch == log[max(log)][0])
        )


def needs(checkpoint: Checkpointed, index: int, entry: Stored) -> bool:
    """An entry lives if its span meets the live set."""
    span = range(index, index + entry[2])
    return span[-1] > checkpoint.index or bool(checkpoint.live.within(span))


def applied(log: Log, written: Written, checkpoint: Checkpointed) -> Log:
    """The log after a write that was taken.

    What a checkpoint contains is not written again. A write below the end that has no newer epoch
    was sent again, or its writer hears of it after the writer of the next one: what the log has of
    it stays, and what it lacks is there.
    """
    floor = max(written.previous, checkpoint.index)
    entries = {
        at: (epoch, payload, span) for at, epoch, payload, span in written.entries if at > floor
    }
    if written.entries and not entries:
        return log
    last = end_of(log)
    if entries and floor < last and min(entries.values())[0] <= log[max(log)][0]:
        return log | {index: entry for index, entry in entries.items() if index not in log}
    return {index: entry for index, entry in log.items() if index <= floor} | entries


@dataclass(eq=False)
class Group:
    """A write of several partitions and a note, which is open."""

    note: str
    parts: dict[str, tuple[int, Stored]]
    """Of each partition, the first entry."""
    is_void: bool = False
    """A part may have gone for another reason."""

    def touched(self, name: str, after: int) -> None:
        """Something above an index of a partition was cut off, or died."""
        if name in self.parts and after < self.parts[name][0]:
            self.is_void = True


@dataclass
class DiskModel:
    """All partitions of a disk, by name."""

    partitions: dict[str, PartitionModel] = field(default_factory=dict)
    notes: dict[str, bytes] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    """Open ones."""

    def touched(self, name: str, after: int) -> None:
        for group in self.groups:
            group.touched(name, after)

    def check_notes(self, shown: Iterable[tuple[str, bytes]], *, settles: bool) -> None:
        """Those that were acknowledged are there, and none that nobody wrote."""
        found, open_ = dict(shown), {group.note for group in self.groups}
        promised = {key: found.get(key) for key in self.notes} == self.notes
        if not promised or not found.keys() <= self.notes.keys() | open_:
            raise BrokenPromise(f"its notes are {found}, promised {self.notes}, open {open_}")
        if settles:
            self.notes = found

    def check_groups(self, logs: Mapping[str, Mapping[int, Stored]]) -> None:
        """Just opened: of each, all or nothing. ``notes`` are those that are shown."""
        for group in self.groups:
            shown = {
                logs[name].get(index) == entry
                for name, (index, entry) in group.parts.items()
                if name in logs
            }
            if not group.is_void and len({*shown, group.note in self.notes}) > 1:
                raise BrokenPromise(f"a part of {group} is there: {shown}, notes {self.notes}")
        self.groups = []

    def copy(self) -> DiskModel:
        return copy.deepcopy(self)

    def check_names(self, shown: list[str], *, settles: bool) -> None:
        for name in shown:
            if name not in self.partitions:
                raise BrokenPromise(f"there is a partition {name!r} that nobody made")
        for name, partition in list(self.partitions.items()):
            if not partition.is_open and partition.is_here != (name in shown):
                raise BrokenPromise(f"{name!r} is {'gone' if partition.is_here else 'back'}")
            if settles:
                partition.is_here = name in shown
                partition.is_open = partition.is_unknown = False
                if name not in shown:
                    del self.partitions[name]
