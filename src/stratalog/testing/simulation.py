"""A whole run from one seed: the loop, the random numbers, the clocks, the processes, the trace.

    async def main(simulation: Simulation) -> str:
        node = simulation.node("a", MemoryStore(), Faults.swarm(simulation.random))
        await node.spawn(workload(node.store, node.runtime))
        await simulation.settle()
        return simulation.trace.digest()

    simulate(main, seed=42)

A failing seed is a bug report: an error leaves ``simulate`` with the seed and the end of the
trace in its notes, and the same seed gives the same trace, byte for byte, in any process.

A ``Node`` is a process. Its tasks are those started by ``spawn`` and by these in turn; its only
way to the world is its ``FaultyStore``. Paused, it neither sends nor hears anything. Crashed, its
tasks are cancelled and whatever they still try has no effect, while what it had already sent
may land later.

The garbage collector rests during a run, because when it runs is not determined by the seed.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from random import Random
from typing import Any, Literal, TypeVar

from stratalog.runtime import Runtime
from stratalog.store import Store, content_etag
from stratalog.testing.faults import Faults, FaultyStore
from stratalog.testing.loop import (
    PROCESS,
    STEPS_MAX,
    TIME_MAX_S,
    SimulatedLoop,
    SimulatedTask,
    SimulationError,
    describe,
)

T = TypeVar("T")

EPOCH_US = 1_700_000_000_000_000
COMPUTE_DELAY_MAX_S = 0.0005
TRACE_LINES_IN_NOTES = 30
CANCEL_ROUNDS_MAX = 100
CANCEL_STEPS_MIN = 1_000


class Trace:
    """What happened, one line each, with its virtual time in microseconds."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(f"{self._loop.time() * 1e6:13.0f} {text}")

    def digest(self) -> str:
        """Equal for equal traces."""
        return content_etag("\n".join(self.lines).encode())


class SimulatedRuntime(Runtime):
    """Clock, ids and randomness of one process, all from the simulation.

    ``skew_us`` is how far its wall clock is ahead, and may be changed at any time, also so that
    the clock goes back.
    """

    def __init__(self, loop: SimulatedLoop, *, skew_us: int = 0) -> None:
        self._loop = loop
        self.skew_us = skew_us

    def now_us(self) -> int:
        return EPOCH_US + int(self._loop.time() * 1e6) + self.skew_us

    def random(self) -> float:
        return self._loop.random.random()

    def new_id(self, length: int = 12) -> str:
        return f"{self._loop.random.getrandbits(4 * length):0{length}x}"

    async def compute(self, work: Callable[[], T]) -> T:
        """Inline: at once, or after a moment in which others may run."""
        if self._loop.random.random() < 0.5:
            await asyncio.sleep(self._loop.random.uniform(0.0, COMPUTE_DELAY_MAX_S))
        return work()


class Node:
    """A simulated process. Make one with ``Simulation.node``."""

    def __init__(
        self, loop: SimulatedLoop, name: str, store: FaultyStore, runtime: SimulatedRuntime
    ) -> None:
        self._loop = loop
        self.name = name
        self.store = store
        self.runtime = runtime
        store.on_crash(self._die)

    @property
    def crashed(self) -> bool:
        return self.store.crashed

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start a task of this process."""
        context = copy_context()
        context.run(PROCESS.set, self.name)
        return self._loop.create_task(work, name=name, context=context)

    def pause(self, seconds: float) -> None:
        """Stop it for so long, as a stalled virtual machine or SIGSTOP would."""
        self.store.pause(seconds)

    def crash(self) -> None:
        """Stop it for good, as SIGKILL would."""
        self.store.crash()

    def crash_at(self, number: int, when: Literal["before", "after"] = "before") -> None:
        """Crash at its store operation of this number, before or after its effect."""
        self.store.crash_at(number, when)

    def _die(self, rounds_left: int = CANCEL_ROUNDS_MAX) -> None:
        """End its tasks. They are cancelled again at once when they try to clean up."""
        tasks = self._loop.live_tasks(self.name)
        for task in tasks:
            task.cancel()
        if tasks and rounds_left:
            self._loop.call_soon(self._die, rounds_left - 1)


class Simulation:
    """What the code of a scenario gets to work with."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        self.loop = loop
        self.seed = seed
        self.random = loop.random
        self.trace = Trace(loop)
        self.runtime = SimulatedRuntime(loop)
        self.nodes: list[Node] = []
        self.unhandled: list[str] = []
        loop.set_exception_handler(self._note_unhandled)

    def node(
        self, name: str, store: Store, faults: Faults | None = None, *, skew_us: int = 0
    ) -> Node:
        """A process that reaches the store through faults of its own. Names are unique."""
        if any(node.name == name for node in self.nodes):
            raise ValueError(f"there is a node {name!r} already")
        faulty = FaultyStore(
            store, faults or Faults(), random=self.random, name=name, note=self.trace.note
        )
        node = Node(self.loop, name, faulty, SimulatedRuntime(self.loop, skew_us=skew_us))
        self.nodes.append(node)
        return node

    async def settle(self) -> None:
        """Wait until everything that was sent has landed or never will."""
        for node in self.nodes:
            await node.store.settle()

    def _note_unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.unhandled.append(f"{context['message']}: {context.get('exception')!r}")


def simulate(
    main: Callable[[Simulation], Coroutine[Any, Any, T]],
    seed: int,
    *,
    time_max_s: float = TIME_MAX_S,
    steps_max: int = STEPS_MAX,
) -> T:
    """Run ``main`` to its end in virtual time, then end whatever it left behind.

    Raises what ``main`` raises, ``Deadlock``, ``LimitExceeded``, or ``SimulationError`` if a task
    that is left over does not end although it is cancelled.
    """
    collecting = gc.isenabled()
    gc.disable()
    loop = SimulatedLoop(Random(seed), time_max_s=time_max_s, steps_max=steps_max)
    simulation = Simulation(loop, seed)
    try:
        try:
            result = loop.run_until_complete(main(simulation))
        except BaseException as error:
            lines = "\n".join(simulation.trace.lines[-TRACE_LINES_IN_NOTES:])
            error.add_note(f"seed {seed}; the trace ends with:\n{lines}")
            _abandon(loop, _cancel_all(loop))
            raise
        if survivors := _cancel_all(loop):
            names = "\n".join(f"  {describe(task)}" for task in survivors)
            _abandon(loop, survivors)
            raise SimulationError(f"seed {seed}; these do not end when cancelled:\n{names}")
        return result
    finally:
        loop.close()
        if collecting:
            gc.enable()


def _cancel_all(loop: SimulatedLoop) -> list[SimulatedTask]:
    """End all tasks and asynchronous generators; what remains is returned."""
    loop.time_max_s = loop.time() + loop.time_max_s
    loop.steps_max = loop.steps + max(loop.steps_max, CANCEL_STEPS_MIN)
    for _ in range(CANCEL_ROUNDS_MAX):
        tasks = loop.live_tasks()
        if not tasks:
            break
        for task in tasks:
            task.cancel()
        try:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        except SimulationError:
            continue
    survivors = loop.live_tasks()
    if not survivors:
        loop.run_until_complete(loop.shutdown_asyncgens())
    return survivors


def _abandon(loop: SimulatedLoop, tasks: list[SimulatedTask]) -> None:
    """Close what refuses to end. The run ends with an error; what else fails is not reported."""
    loop.set_exception_handler(lambda _, __: None)
    for task in tasks:
        coroutine = task.get_coro()
        if coroutine is not None:
            try:
                coroutine.close()
            except RuntimeError:
                continue
