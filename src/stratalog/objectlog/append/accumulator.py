"""Back-pressure of a writer: submissions wait here in call order, within bounds.

A submission is one `append` or one `append_many`: its records stay together. It is settled once,
through its future. A caller that was cancelled has merely stopped looking at that future.
"""

import asyncio
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from itertools import chain, takewhile
from operator import attrgetter
from typing import Any

import msgspec

from stratalog.errors import StratalogError
from stratalog.objectlog.stored import LogPosition, Span

Result = LogPosition | Span


class UnwatchedFuture(asyncio.Future[Result]):
    """The future of a `submit`, whose caller may never look at it. A failure must be noticed."""

    seen = False
    """Whether somebody has looked at the failure."""

    def __await__(self) -> Generator[Any, None, Result]:
        self.seen = True
        return super().__await__()

    def fail(self, error: StratalogError) -> None:
        self.set_exception(error)
        self.__class__ = _FailedFuture  # Only failures are watched: successes stay as fast as any.


class _FailedFuture(UnwatchedFuture):
    def result(self) -> Result:
        self.seen = True
        return super().result()

    def exception(self) -> BaseException | None:
        self.seen = True
        return super().exception()


class Submission(msgspec.Struct, eq=False, gc=False):
    """Records that are appended together, and the promise of an answer."""

    bodies: Sequence[bytes]
    size: int
    future: asyncio.Future[Result]
    called_s: float
    one: bool
    expected_offset: int | None

    def succeed(self, first_offset: int, timestamp_us: int) -> None:
        """Answer a caller that is still there."""
        first = LogPosition(first_offset, timestamp_us)
        self.future.set_result(first if self.one else Span(first, first_offset + len(self.bodies)))

    def fail(self, error: StratalogError) -> None:
        if self.future.done():
            return
        if isinstance(self.future, UnwatchedFuture):
            self.future.fail(error.copy())
        else:
            self.future.set_exception(error.copy())


_bodies_of = attrgetter("bodies")


class Accumulator:
    """The queue, and the line of callers that wait for room in it."""

    def __init__(self, bytes_max: int, records_max: int) -> None:
        self._bytes_max = bytes_max
        self._records_max = records_max
        self._waiting: deque[Submission] = deque()
        self._room: deque[asyncio.Future[None]] = deque()
        self._turn_given = False
        self._conditional = 0
        self.bytes = 0
        self.records = 0
        self.refusal: StratalogError | None = None
        """Why nothing more may enter."""

    def __len__(self) -> int:
        return len(self._waiting)

    def check_open(self) -> None:
        if self.refusal is not None:
            raise self.refusal.copy()

    def has_room(self) -> bool:
        """Whether one more submission may enter, of whatever size."""
        return self.bytes < self._bytes_max and self.records < self._records_max

    @property
    def crowded(self) -> bool:
        """Whether a newcomer has to wait: there is no room, or others are in line for it."""
        return (
            self.bytes >= self._bytes_max or self.records >= self._records_max or bool(self._room)
        )

    async def wait_for_room(self) -> None:
        """Wait for one's turn. Turns come in the order of the calls."""
        if not self.crowded:
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._room.append(turn)
        try:
            await turn
        finally:
            if turn.done() and not turn.cancelled():
                # Whatever its owner did with this turn, the next one follows.
                loop.call_soon(self._end_turn)

    def push(self, submission: Submission) -> None:
        self._waiting.append(submission)
        self.bytes += submission.size
        self.records += len(submission.bodies)
        if submission.expected_offset is not None:
            self._conditional += 1

    def push_back(self, submissions: Iterable[Submission]) -> None:
        """Put submissions at the front again, in their order."""
        again = list(submissions)
        self._waiting.extendleft(reversed(again))
        for submission in again:
            self.bytes += submission.size
            self.records += len(submission.bodies)
            self._conditional += submission.expected_offset is not None

    @property
    def first(self) -> Submission | None:
        return self._waiting[0] if self._waiting else None

    def leading_conditional(self) -> list[Submission]:
        """The submissions at the front that expect an offset."""
        return list(takewhile(lambda each: each.expected_offset is not None, self._waiting))

    @property
    def last(self) -> Submission | None:
        return self._waiting[-1] if self._waiting else None

    def take(self, bytes_max: int, next_offset: int) -> tuple[list[Submission], list[bytes], int]:
        """Take the first submission, and those behind it that fit in with it.

        Gives them, their records, and the size of these. ``next_offset`` is where the first one
        would land; a submission that expects another offset than its own is left.
        """
        if self.bytes <= bytes_max and not self._conditional:
            taken, size = list(self._waiting), self.bytes
            self._waiting.clear()
            bodies = list(chain.from_iterable(map(_bodies_of, taken)))
        else:
            taken, bodies, size = self._take_those_that_fit(bytes_max, next_offset)
        self.bytes -= size
        self.records -= len(bodies)
        if self._room:
            self._give_turn()
        return taken, bodies, size

    def _take_those_that_fit(
        self, bytes_max: int, next_offset: int
    ) -> tuple[list[Submission], list[bytes], int]:
        waiting = self._waiting
        taken: list[Submission] = []
        bodies: list[bytes] = []
        size = 0
        while waiting:
            head = waiting[0]
            if taken:
                if size + head.size > bytes_max:
                    break
                if head.expected_offset not in (None, next_offset + len(bodies)):
                    break
            taken.append(waiting.popleft())
            self._conditional -= head.expected_offset is not None
            bodies.extend(head.bodies)
            size += head.size
        return taken, bodies, size

    def pop(self) -> Submission:
        submission = self._waiting.popleft()
        self._conditional -= submission.expected_offset is not None
        self.bytes -= submission.size
        self.records -= len(submission.bodies)
        if self._room:
            self._give_turn()
        return submission

    def stop(self, refusal: StratalogError) -> list[Submission]:
        """Take everything out, and let nothing more in. Callers that wait for room are woken."""
        self.refusal = refusal
        everything = list(self._waiting)
        self._waiting.clear()
        self.bytes = self.records = self._conditional = 0
        while self._room:
            turn = self._room.popleft()
            if not turn.done():
                turn.set_result(None)
        return everything

    def _end_turn(self) -> None:
        self._turn_given = False
        self._give_turn()

    def _give_turn(self) -> None:
        """Wake the first in line that is still there, if there is room. One turn at a time."""
        while self._room and not self._turn_given and self.has_room():
            turn = self._room.popleft()
            if not turn.done():
                turn.set_result(None)
                self._turn_given = True
