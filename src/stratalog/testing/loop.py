"""An event loop whose time is a number and whose every run can be repeated.

Production code runs on it unchanged. Nothing waits in reality: when no callback is ready, the
clock jumps to the next timer. There are no sockets and no threads; work handed to an executor
runs inline, some virtual time after it was handed over and some before it is answered.

It is asyncio's own loop with a selector that never waits: it is asked how long nothing will
happen, and moves the clock instead.

What it promises:

- The same generator and the same code give the same steps in the same order, in any process.
  Timers of one instant fire in the order in which they were set. Tasks and futures hash by
  their number, so that a set of them is walked in the same order everywhere. Tasks without a
  name are named by their number.
- ``Deadlock`` when nothing is ready and nothing is scheduled, with the tasks that wait and where.
- ``LimitExceeded`` when virtual time or the number of steps runs away: a livelock.

Each task belongs to the simulated process whose name ``PROCESS`` held when the task was created,
and so do the tasks that it creates in turn.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context, ContextVar
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PROCESS: ContextVar[str] = ContextVar("stratalog_simulated_process", default="")

TIME_MAX_S = 24 * 3600.0
STEPS_MAX = 1_000_000
EXECUTOR_DELAY_MAX_S = 0.002
WAITING_TASKS_SHOWN = 20


class SimulationError(Exception):
    """The simulated program cannot go on."""


class Deadlock(SimulationError):
    """Everybody waits and nothing will ever wake them."""


class LimitExceeded(SimulationError):
    """The run took more virtual time or more steps than it may."""


class SimulatedTask(asyncio.Task[Any]):
    """A task with a number, which is also its hash, and the process that it belongs to."""

    def __init__(self, coro: Any, number: int, process: str, **options: Any) -> None:
        # Before the base class, which puts the new task into a set.
        self.number = number
        self.process = process
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


class SimulatedFuture(asyncio.Future[Any]):
    """A future whose hash is its number."""

    number: int

    def __hash__(self) -> int:
        return self.number


class Instant(float):
    """When a timer fires. Of those at one moment the one that was set first is the earlier."""

    number: int

    def __lt__(self, other: float) -> bool:
        if isinstance(other, Instant) and self == other:
            return self.number < other.number
        return float(self) < float(other)


class _NeverWaits(selectors.SelectSelector):
    """Has nothing to report, and passes on how long the loop would wait for it."""

    def __init__(self, on_wait: Callable[[float | None], None]) -> None:
        super().__init__()
        self._on_wait = on_wait

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._on_wait(timeout)
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """See the module's docstring for what it promises."""

    def __init__(
        self, random: Random, *, time_max_s: float = TIME_MAX_S, steps_max: int = STEPS_MAX
    ) -> None:
        super().__init__(_NeverWaits(self._step))
        self.random = random
        self.steps = 0
        self.time_max_s = time_max_s
        self.steps_max = steps_max
        self._now = 0.0
        self._timers: list[tuple[Instant, asyncio.TimerHandle]] = []
        self._timer_numbers = count(1)
        self._future_numbers = count(1)
        self._task_numbers = count(1)
        self._owner = threading.get_ident()

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        instant = Instant(when)
        instant.number = next(self._timer_numbers)
        handle = super().call_at(instant, callback, *args, context=context)
        heapq.heappush(self._timers, (instant, handle))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() != self._owner:
            raise SimulationError("a thread entered the simulation: its order is not repeatable")
        return self.call_soon(callback, *args, context=context)

    def create_future(self) -> SimulatedFuture:
        future = SimulatedFuture(loop=self)
        future.number = next(self._future_numbers)
        return future

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        number = next(self._task_numbers)
        process = PROCESS.get() if context is None else context.get(PROCESS, "")
        named = f"task-{number}" if name is None else str(name)
        return SimulatedTask(
            coro, number, process, loop=self, name=named, context=context, **options
        )

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002 - there is but one way to run it here
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Run it inline at a virtual time of its own. Giving up waiting does not stop it."""
        answer = self.create_future()
        delay_s = self.random.uniform(0.0, EXECUTOR_DELAY_MAX_S)
        answer_delay_s = self.random.uniform(0.0, EXECUTOR_DELAY_MAX_S)

        def deliver(deed: Callable[[Any], None], outcome: object) -> None:
            if not answer.done():
                deed(outcome)

        def run() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - it belongs to the caller, as every error
                self.call_later(answer_delay_s, deliver, answer.set_exception, error)
            else:
                self.call_later(answer_delay_s, deliver, answer.set_result, result)

        self.call_later(delay_s, run)
        return answer

    def live_tasks(self, process: str | None = None) -> list[SimulatedTask]:
        """The tasks that have not ended, oldest first, of one process or of all."""
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimulatedTask)]
        tasks.sort(key=lambda task: task.number)
        return [task for task in tasks if process is None or task.process == process]

    def _step(self, wait_s: float | None) -> None:
        """A turn begins. ``wait_s`` is 0 if callbacks are ready, None if none will ever be."""
        self.steps += 1
        if self.steps > self.steps_max:
            raise LimitExceeded(
                f"more than {self.steps_max} steps, at {self._now:.6f} s of virtual time:\n"
                + self._waiting()
            )
        if wait_s is None:
            raise Deadlock(
                f"nothing is scheduled at {self._now:.6f} s of virtual time:\n{self._waiting()}"
            )
        if wait_s > 0:
            self._jump()

    def _jump(self) -> None:
        """Go to the next timer that still counts."""
        timers = self._timers
        while timers[0][1].cancelled() or timers[0][0] <= self._now:
            heapq.heappop(timers)
        if timers[0][0] > self.time_max_s:
            raise LimitExceeded(
                f"more than {self.time_max_s} s of virtual time:\n{self._waiting()}"
            )
        self._now = float(timers[0][0])

    def _waiting(self) -> str:
        tasks = self.live_tasks()
        lines = [f"  {describe(task)}" for task in tasks[:WAITING_TASKS_SHOWN]]
        if len(tasks) > WAITING_TASKS_SHOWN:
            lines.append(f"  and {len(tasks) - WAITING_TASKS_SHOWN} more tasks")
        return "\n".join(lines)


def describe(task: SimulatedTask) -> str:
    """A task's name, its process, and the chain of coroutines down to where it waits."""
    chain = []
    waits: Any = task.get_coro()
    while (
        frame := getattr(waits, "cr_frame", None) or getattr(waits, "ag_frame", None)
    ) is not None:
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        chain.append(f"{waits.__qualname__} ({place})")
        waits = getattr(waits, "cr_await", None) or getattr(waits, "ag_await", None)
    owner = f" of {task.process}" if task.process else ""
    return f"{task.get_name()}{owner} waits in {' > '.join(chain) or 'nothing'}"
