"""The account of calls, answers and reads; and whether one log explains all of them.

The ledger notes every append when it is called and when it is answered, and every record when it is
read in the order of the log. These rules must hold at all times:

    dense           offsets have no gap
    time            timestamps never decrease
    origin          every record has a writer
    changed         a record is unchanged
    once            no record is there twice
    order           the records of a writer are in the order of its calls
    lost            an acknowledged record is there
    position        an acknowledged record has the acknowledged offset and time
    atomic          an append of many records is there whole, side by side, or not at all
    not-happened    an append that failed definitely is not there
    real-time       an append called after an offset was known to be taken lies after it

Matched appends are forgotten. So the ledger keeps the appends on their way from a writer to the
reader, and those that ended in doubt: each may land, once, at any time.
No I/O, no clock.
"""

import heapq
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stratalog.objectlog.check import Numbers, Seen, Stretch, stretches_of

VIOLATIONS_KEPT_MAX = 100

Rule = Literal[
    "dense",
    "time",
    "origin",
    "changed",
    "once",
    "order",
    "lost",
    "position",
    "atomic",
    "not-happened",
    "real-time",
    "tail",
    "read",
    "pin",
    "fork",
    "held",
    "chore",
    "stored",
]
Outcome = Literal["open", "ok", "failed", "unknown"]
Times = npt.NDArray[np.uint64]


class Violation(msgspec.Struct, frozen=True):
    """A broken promise. ``rule`` is stable and meant for programs."""

    rule: Rule
    detail: str


@dataclass(slots=True, eq=False)
class Call:
    writer: int
    first: int
    count: int
    floor: int
    """All offsets below it were known to be taken when the append was called."""

    outcome: Outcome = "open"
    offset: int = 0
    timestamp_us: int = 0
    seen: int = 0
    seen_at: int | None = None
    """The offset of its first record, computed from the first of its records that was read."""

    def __str__(self) -> str:
        numbers = f"{self.first}" if self.count == 1 else f"{self.first} to {self.last}"
        answer = f"acknowledged at {self.offset}" if self.outcome == "ok" else self.outcome
        return f"writer {self.writer}, number {numbers} ({answer})"

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    @property
    def is_matched(self) -> bool:
        return self.outcome in ("ok", "unknown") and self.seen >= self.count


@dataclass(slots=True, eq=False)
class _Writer:
    """A writer number: one caller, with at most one append under way."""

    numbers: Numbers = field(default_factory=Numbers)
    calls: deque[Call] = field(default_factory=deque)
    called: int = 0
    retired: bool = False


class Ledger:
    """The account of one run. ``alone`` says that no other program writes to the log."""

    def __init__(self, run: str, first_offset: int, *, alone: bool) -> None:
        self._run = run
        self._alone = alone
        self._writers: dict[int, _Writer] = {}
        self._writers_opened = 0
        self._acknowledged: list[tuple[int, int, Call]] = []
        self._acknowledgements = 0
        self._latest_us = 0
        self.taken = first_offset
        """All offsets below it are known to be taken: acknowledged, or read."""
        self.next_offset = first_offset
        self.called = self.acknowledged = self.failed = self.unknown = self.landed = 0
        self.read = self.others = 0
        self.violated = 0
        self.violations: list[Violation] = []

    @property
    def lag(self) -> int:
        """How many records are known to be in the log and are not read yet."""
        return self.taken - self.next_offset

    @property
    def remembered(self) -> int:
        """How many appends the ledger keeps."""
        return sum(len(writer.calls) for writer in self._writers.values())

    def violate(self, rule: Rule, detail: str) -> None:
        """Note a broken promise. All are counted, the first ones kept."""
        self.violated += 1
        if len(self.violations) < VIOLATIONS_KEPT_MAX:
            self.violations.append(Violation(rule, detail))

    # Appends

    def open_writer(self) -> int:
        """A writer number, never used before."""
        self._writers_opened += 1
        self._writers[self._writers_opened] = _Writer()
        return self._writers_opened

    def call(self, writer: int, count: int) -> Call:
        """An append begins, with the next numbers of this writer."""
        state = self._writers[writer]
        call = Call(writer, state.called, count, self.taken)
        state.called += count
        state.calls.append(call)
        self.called += count
        return call

    def acknowledge(self, call: Call, offset: int, timestamp_us: int) -> None:
        """It happened, at this offset and time."""
        call.outcome, call.offset, call.timestamp_us = "ok", offset, timestamp_us
        self.acknowledged += call.count
        self.taken = max(self.taken, offset + call.count)
        if call.seen_at is not None and call.seen_at != offset:
            self.violate("position", f"{call} was read at {call.seen_at}")
        if call.seen < call.count:
            self._acknowledgements += 1
            entry = (offset + call.count, self._acknowledgements, call)
            heapq.heappush(self._acknowledged, entry)
            self._find_lost(self.next_offset)
        self._forget(call.writer)

    def fail(self, call: Call) -> None:
        """It did not happen, and never will."""
        call.outcome = "failed"
        self.failed += call.count
        if call.seen:
            self.violate("not-happened", f"{call} was read at {call.seen_at}")

    def doubt(self, call: Call) -> None:
        """It may have happened, or may still happen."""
        call.outcome = "unknown"
        self.unknown += call.count
        self.landed += call.seen
        self._forget(call.writer)

    def retire(self, writer: int) -> None:
        """This number makes no more calls."""
        self._writers[writer].retired = True
        self._forget(writer)

    # Reading

    def see(self, batch: pa.RecordBatch) -> list[Stretch]:
        """Account for the next records of the log. Returns those of this run, as described."""
        offsets: Times = batch.column(0).to_numpy()
        times_us: Times = batch.column(1).to_numpy()
        self._check_places(offsets, times_us)
        stretches, broken = stretches_of(batch)
        for each in broken:
            self.violate("changed", f"offset {each.offset}: {each.reason}")
        ours = [stretch for stretch in stretches if stretch.run == self._run]
        strange = batch.num_rows - sum(each.count for each in ours) - len(broken)
        self.others += strange
        if strange and self._alone:
            self.violate("origin", f"{strange} records from offset {offsets[0]} on have no writer")
        for stretch in ours:
            start = stretch.offset - int(offsets[0])
            self._see(stretch, times_us[start : start + stretch.count])
        self._find_lost(self.next_offset)
        return ours

    def skip_to(self, offset: int) -> None:
        """Continue at another offset. Acknowledged records before it count as lost."""
        self.next_offset = offset
        self._find_lost(self.next_offset)

    def finish(self) -> None:
        """Everything was read: acknowledged records that were not seen are lost."""
        self._find_lost(math.inf)
        for writer in self._writers.values():
            for call in writer.calls:
                if 0 < call.seen < call.count:
                    self.violate("atomic", f"{call}: {call.seen} of {call.count} were read")

    def _check_places(self, offsets: Times, times_us: Times) -> None:
        first, count = int(offsets[0]), len(offsets)
        if first != self.next_offset:
            self.violate("dense", f"offset {first} was read, but {self.next_offset} comes next")
        wanted = np.arange(first, first + count, dtype=np.uint64)
        if not np.array_equal(offsets, wanted):
            self.violate("dense", f"offsets {first} to {offsets[-1]} are not {count} in turn")
        if int(times_us[0]) < self._latest_us or (times_us[1:] < times_us[:-1]).any():
            self.violate("time", f"timestamps decrease among the records from offset {first} on")
        self._latest_us = max(self._latest_us, int(times_us[-1]))
        self.next_offset = first + count
        self.taken = max(self.taken, self.next_offset)

    def _see(self, stretch: Stretch, times_us: Times) -> None:
        self.read += stretch.count
        writer = self._writers.get(stretch.writer)
        if writer is None:
            rule: Rule = "once" if 0 < stretch.writer <= self._writers_opened else "origin"
            self.violate(rule, f"{_place(stretch)}, but that writer has no open append")
            return
        if stretch.first + stretch.count > writer.called:
            self.violate("origin", f"{_place(stretch)}, but it has called only {writer.called}")
            return
        for seen in writer.numbers.see(stretch.first, stretch.count):
            if seen.how == "twice":
                self.violate("once", f"{_place(stretch)}: number {seen.first} was read before")
            elif seen.how != "missing":
                if seen.how != "new":
                    self.violate("order", f"{_place(stretch)}: after later ones of that writer")
                self._match(writer, seen, stretch, times_us)
        self._forget(stretch.writer)

    def _match(self, writer: _Writer, seen: Seen, stretch: Stretch, times_us: Times) -> None:
        """Match records that were read with the appends that wrote them."""
        for call, low, high in _overlapping(writer.calls, seen.first, seen.first + seen.count):
            start = stretch.offset - stretch.first + call.first
            if call.seen_at is None:
                call.seen_at = start
                self._check_place(call, start, int(times_us[low - stretch.first]))
            elif call.seen_at != start:
                self.violate("atomic", f"{call} was torn: read at {call.seen_at} and at {start}")
            call.seen += high - low
            if call.outcome == "unknown":
                self.landed += high - low

    def _check_place(self, call: Call, start: int, time_us: int) -> None:
        if call.outcome == "failed":
            self.violate("not-happened", f"{call} was read at {start}")
        elif call.outcome == "ok" and (start, time_us) != (call.offset, call.timestamp_us):
            self.violate("position", f"{call} was read at {start}, time {time_us}")
        if start < call.floor:
            self.violate("real-time", f"{call} is at {start}, but all below {call.floor} was taken")

    # Forgetting

    def _find_lost(self, limit: float) -> None:
        """Report acknowledged records before ``limit`` that the reader has passed unseen."""
        while self._acknowledged and self._acknowledged[0][0] <= limit:
            call = heapq.heappop(self._acknowledged)[2]
            if call.seen < call.count:
                self.violate("lost", f"{call}: {call.seen} of {call.count} were read")
                call.seen = call.count
                self._forget(call.writer)

    def _forget(self, number: int) -> None:
        writer = self._writers.get(number)
        if writer is None:
            return
        while writer.calls and writer.calls[0].is_matched:
            writer.calls.popleft()
        if writer.retired and not writer.calls:
            del self._writers[number]


def _overlapping(calls: deque[Call], first: int, limit: int) -> Iterator[tuple[Call, int, int]]:
    for call in calls:
        low, high = max(first, call.first), min(limit, call.first + call.count)
        if low < high:
            yield call, low, high
        elif call.first >= limit:
            return


def _place(stretch: Stretch) -> str:
    last = stretch.first + stretch.count - 1
    return f"offset {stretch.offset} has writer {stretch.writer}, numbers {stretch.first} to {last}"
