"""What clients asked and heard, and whether one log can explain it all.

``History`` records each operation when it is called and when it returns. ``check_appends`` takes
the history and the final content of the log, and raises ``HistoryViolation`` unless:

    dense            offsets count from the first one without a gap
    time             timestamps never go back
    once             no record is there twice
    origin           every record was written by some append
    acknowledged     an acknowledged append is there, at its position, with its timestamp
    not-happened     an append that failed definitely is not there
    atomic           of an append of many records all are there, side by side and in order, or
                     none, also when its outcome is unknown
    conditional      a conditional append is where it was expected to be
    real-time        what was called after a position was known to be taken is placed after it;
                     an append of unknown outcome may have landed at any time after its call
    read             a read saw records without a gap, each as it is in the final log
    tail             a tail that was read covers all that was known to be taken before the read
                     was called, and all that the read saw, and never more than the final log

"Known to be taken" means acknowledged, or seen by a read, before the other call was made.

Bodies must be unique within a history: the checker finds records by them. An operation that
never returned counts as unknown. Time is taken from ``clock``; two events of one history never
share an instant, because the order in which they were recorded is the order in which they
happened.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, Protocol, TypeVar

from stratalog.errors import StratalogError, Unknown

Row = tuple[int, int, bytes]
"""Offset, timestamp in microseconds, body."""

BODY_BYTES_SHOWN = 40


class HistoryViolation(AssertionError):
    """The log and its history contradict each other. ``rule`` names the broken promise."""

    def __init__(self, rule: str, explanation: str) -> None:
        super().__init__(f"{rule}: {explanation}")
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Append:
    """An append of one or more records, at any offset or only at the expected one."""

    bodies: tuple[bytes, ...]
    expected_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """The answer to an append: the position of its first record."""

    offset: int
    timestamp_us: int


@dataclass(frozen=True, slots=True)
class Read:
    """A read of the records from an offset on, and perhaps of the tail."""

    from_offset: int


@dataclass(frozen=True, slots=True)
class Seen:
    """The answer to a read. ``tail`` is the offset after the last record, if it was asked for."""

    rows: tuple[Row, ...] = ()
    tail: int | None = None


@dataclass(slots=True)
class Operation:
    """One call and what became of it."""

    client: str
    request: Append | Read
    called: float
    returned: float = math.inf
    outcome: Literal["ok", "failed", "unknown"] = "unknown"
    result: Placed | Seen | None = None
    error: str = ""

    def __str__(self) -> str:
        if isinstance(self.request, Append):
            bodies = self.request.bodies
            what = f"append of {_shown(bodies[0])}"
            if len(bodies) > 1:
                what += f" and {len(bodies) - 1} more"
            if self.request.expected_offset is not None:
                what += f" at {self.request.expected_offset}"
        else:
            what = f"read from {self.request.from_offset}"
        heard = self.error if self.outcome == "failed" else self.outcome
        if isinstance(self.result, Placed):
            heard = f"offset {self.result.offset}, time {self.result.timestamp_us}"
        elif isinstance(self.result, Seen):
            heard = f"{len(self.result.rows)} records, tail {self.result.tail}"
        return f"{self.client}'s {what} [{self.called:.6f}, {self.returned:.6f}] → {heard}"


class Position(Protocol):
    """What an append of the library returns: a ``LogPosition``."""

    @property
    def offset(self) -> int: ...

    @property
    def timestamp_us(self) -> int: ...


P = TypeVar("P", bound=Position)


class History:
    """Operations as they are called and as they return."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.operations: list[Operation] = []
        self._clock = clock
        self._last = 0.0

    def call(self, client: str, request: Append | Read) -> int:
        """Note a call; the number that is returned names it from here on."""
        self.operations.append(Operation(client, request, self._now()))
        return len(self.operations) - 1

    def ok(self, number: int, result: Placed | Seen) -> None:
        self._return(number, "ok").result = result

    def failed(self, number: int, error: BaseException) -> None:
        """It did not happen, and never will."""
        self._return(number, "failed").error = repr(error)

    def unknown(self, number: int) -> None:
        """It may have happened, or may still happen."""
        self._return(number, "unknown")

    def merge(self, other: History) -> None:
        """Add what another process saw by the same clock."""
        self.operations.extend(other.operations)

    async def observe(self, client: str, request: Append, attempt: Awaitable[P]) -> P:
        """Await an append and note its outcome as the library's errors define it.

        An attempt that ends in any other way, cancelled or crashed, remains unknown.
        """
        number = self.call(client, request)
        try:
            position = await attempt
        except Unknown:
            self.unknown(number)
            raise
        except StratalogError as error:
            self.failed(number, error)
            raise
        self.ok(number, Placed(position.offset, position.timestamp_us))
        return position

    def _return(self, number: int, outcome: Literal["ok", "failed", "unknown"]) -> Operation:
        operation = self.operations[number]
        if operation.returned < math.inf:
            raise ValueError(f"it returned already: {operation}")
        operation.returned = self._now()
        operation.outcome = outcome
        return operation

    def _now(self) -> float:
        now = self._last + 1.0 if self._clock is None else self._clock()
        self._last = now if now > self._last else math.nextafter(self._last, math.inf)
        return self._last


def check_appends(
    history: History,
    records: Sequence[Row],
    *,
    first_offset: int = 1,
    blanks: Collection[int] = (),
) -> None:
    """Raise ``HistoryViolation`` unless the final log explains the history. O(n log n).

    ``blanks`` are offsets that an eraser has left out: the rows there stand for nothing.
    """
    log = _FinalLog(records, first_offset)
    writers = _writers(history)
    for offset, _, body in records:
        if body not in writers and offset not in blanks:
            raise HistoryViolation("origin", f"nobody wrote {_shown(body)} at offset {offset}")
    starts: dict[int, int] = {}
    for operation in history.operations:
        if isinstance(operation.request, Append):
            start = _check_append(log, operation, operation.request)
            if start is not None:
                starts[id(operation)] = start
        elif isinstance(operation.result, Seen):
            _check_read(log, operation, operation.request, operation.result)
    _check_real_time(history, starts)


class _FinalLog:
    """The records that were read back, checked on their own and indexed by body."""

    def __init__(self, records: Sequence[Row], first_offset: int) -> None:
        self.records = records
        self.first_offset = first_offset
        self.tail = first_offset + len(records)
        self.offsets: dict[bytes, int] = {}
        latest_us = 0
        for expected, (offset, timestamp_us, body) in enumerate(records, first_offset):
            if offset != expected:
                raise HistoryViolation("dense", f"offset {offset} is where {expected} should be")
            if timestamp_us < latest_us:
                raise HistoryViolation(
                    "time", f"offset {offset} has time {timestamp_us} after {latest_us}"
                )
            latest_us = timestamp_us
            earlier = self.offsets.setdefault(body, offset)
            if earlier != offset:
                raise HistoryViolation("once", f"{_shown(body)} is at {earlier} and at {offset}")

    def at(self, offset: int) -> Row | None:
        if self.first_offset <= offset < self.tail:
            return self.records[offset - self.first_offset]
        return None


def _writers(history: History) -> dict[bytes, Operation]:
    writers: dict[bytes, Operation] = {}
    for operation in history.operations:
        if isinstance(operation.request, Append):
            for body in operation.request.bodies:
                if writers.setdefault(body, operation) is not operation:
                    raise ValueError(f"{_shown(body)} was written twice: bodies must be unique")
    return writers


def _check_append(log: _FinalLog, operation: Operation, request: Append) -> int | None:
    """The offset at which it landed, or None."""
    found = [log.offsets[body] for body in request.bodies if body in log.offsets]
    if operation.outcome == "failed" and found:
        raise HistoryViolation("not-happened", f"{operation}, yet it is at offset {found[0]}")
    if isinstance(operation.result, Placed):
        placed = operation.result
        if not found:
            raise HistoryViolation("acknowledged", f"{operation}, yet it is not in the log")
        row = log.at(found[0])
        if row is None or row[:2] != (placed.offset, placed.timestamp_us):
            raise HistoryViolation("acknowledged", f"{operation}, yet the log has {row}")
    if not found:
        return None
    start = found[0]
    if found != list(range(start, start + len(request.bodies))):
        raise HistoryViolation(
            "atomic", f"{operation}, yet of {len(request.bodies)} records these are there: {found}"
        )
    if request.expected_offset is not None and start != request.expected_offset:
        raise HistoryViolation("conditional", f"{operation}, yet it is at offset {start}")
    return start


def _check_read(log: _FinalLog, operation: Operation, request: Read, seen: Seen) -> None:
    for offset, row in enumerate(seen.rows, max(request.from_offset, log.first_offset)):
        if row[0] != offset:
            raise HistoryViolation("read", f"{operation}: saw {row[0]} where {offset} is next")
        if row != log.at(offset):
            raise HistoryViolation(
                "read", f"{operation}: saw {row} where the final log has {log.at(offset)}"
            )
    if seen.tail is not None:
        if seen.tail > log.tail:
            raise HistoryViolation("tail", f"{operation}: the final log ends at {log.tail}")
        if seen.rows and seen.tail <= seen.rows[-1][0]:
            raise HistoryViolation("tail", f"{operation}: it saw offset {seen.rows[-1][0]}")


def _check_real_time(history: History, starts: dict[int, int]) -> None:
    """Walk through calls in order, with the highest offset known to be taken by then."""
    returns = sorted(
        (operation for operation in history.operations if operation.result is not None),
        key=attrgetter("returned"),
    )
    taken, witness, heard = 0, "", 0
    for operation in sorted(history.operations, key=attrgetter("called")):
        while heard < len(returns) and returns[heard].returned < operation.called:
            limit = _taken_by(returns[heard])
            if limit > taken:
                taken, witness = limit, str(returns[heard])
            heard += 1
        start = starts.get(id(operation))
        if start is not None and start < taken:
            raise HistoryViolation(
                "real-time", f"{operation}, yet it is at offset {start}, and before came {witness}"
            )
        if isinstance(operation.result, Seen):
            tail = operation.result.tail
            if tail is not None and tail < taken:
                raise HistoryViolation("tail", f"{operation}, and before came {witness}")


def _taken_by(operation: Operation) -> int:
    """The offset below which all was taken when this operation returned."""
    result = operation.result
    if isinstance(result, Placed) and isinstance(operation.request, Append):
        return result.offset + len(operation.request.bodies)
    if isinstance(result, Seen):
        return max(result.tail or 0, result.rows[-1][0] + 1 if result.rows else 0)
    return 0


def _shown(body: bytes) -> str:
    return repr(body if len(body) <= BODY_BYTES_SHOWN else body[:BODY_BYTES_SHOWN] + b"...")
