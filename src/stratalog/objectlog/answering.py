"""Telling callers where their records landed, a portion at a time.

Who is answered goes on at once. A thousand callers that are answered together keep the event loop
for several milliseconds, and an upload that ends meanwhile waits to be noticed: the store is idle
while the callers run, and the callers are idle while the store works. Between two portions the loop
looks at what has ended and lets threads that upload have the interpreter, so that both go on at the
same time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from stratalog.objectlog.accumulator import Submission
from stratalog.runtime import Runtime

PORTION = 64


class Answers:
    """Those that are owed. They are given in the order of the calls."""

    def __init__(self, on_given: Callable[[], None], runtime: Runtime) -> None:
        self._owed: deque[Iterator[None]] = deque()
        self._on_given = on_given
        self._runtime = runtime
        self._scheduled = False
        self.last: Submission | None = None

    def __bool__(self) -> bool:
        return bool(self._owed)

    def give(self, submissions: Sequence[Submission], offset: int, timestamp_us: int) -> None:
        """Answer these, the first of whose records is at this position. A few of them at once."""
        self._owed.append(_answering(submissions, offset, timestamp_us))
        self.last = submissions[-1]
        if not self._scheduled:
            self._give_some()

    def give_all(self) -> None:
        """Now, because those that were called later are about to be settled."""
        for owed in self._owed:
            deque(owed, maxlen=0)
        self._owed.clear()
        self.last = None

    def _give_some(self) -> None:
        left = PORTION
        while self._owed and left:
            for _ in islice(self._owed[0], left):
                left -= 1
            if left:
                self._owed.popleft()
        if self._owed:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            self.last = None

    def _go_on(self) -> None:
        self._scheduled = False
        self._runtime.let_threads_run()
        self._give_some()
        if not self._owed:
            self._on_given()


def _answering(submissions: Sequence[Submission], offset: int, timestamp_us: int) -> Iterator[None]:
    """Answers one for each step. A caller that was cancelled is gone."""
    for submission in submissions:
        if not submission.future.done():
            submission.succeed(offset, timestamp_us)
        offset += len(submission.bodies)
        yield
