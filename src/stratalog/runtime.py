"""Time, randomness, ids and threads: everything that is not determined by the input.

The rest of the package asks a ``Runtime`` and never the operating system, so that a simulation
can put its own in place and replay a run from its seed. Durations and time-outs use the event
loop's clock, which the simulation also owns.
"""

import asyncio
import os
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

IO_THREADS_MAX = 64
CPU_THREADS_MAX = max(2, min(8, os.cpu_count() or 2))


class Runtime:
    """What the world gives: the wall clock, randomness, and threads for work that blocks."""

    def now_us(self) -> int:
        """Microseconds since the Unix epoch. Used for timestamps, never for safety."""
        return time.time_ns() // 1000

    def random(self) -> float:
        """A number in [0, 1), for jitter."""
        return secrets.randbelow(1 << 53) / (1 << 53)

    def new_id(self, length: int = 12) -> str:
        """Random lower-case hex digits: incarnations, write ids."""
        return secrets.token_hex((length + 1) // 2)[:length]

    async def compute(self, work: Callable[[], T]) -> T:
        """Run work that keeps a core busy, away from the event loop."""
        return await run_blocking(work, "cpu", CPU_THREADS_MAX)


DEFAULT_RUNTIME = Runtime()

_pools: dict[tuple[str, int], ThreadPoolExecutor] = {}
_turns: dict[int, threading.Semaphore] = {}


def thread_pool(purpose: str, threads_max: int) -> ThreadPoolExecutor:
    """The process's pool for one purpose. Threads do not survive a fork: a child gets its own."""
    key = (purpose, os.getpid())
    return _pools.get(key) or _pools.setdefault(
        key, ThreadPoolExecutor(threads_max, thread_name_prefix=f"stratalog-{purpose}")
    )


def cpu_turn() -> threading.Semaphore:
    """To be held by a thread of another pool that keeps a core busy: as many at a time as there are
    threads for it. A child of a fork gets its own."""
    key = os.getpid()
    return _turns.get(key) or _turns.setdefault(key, threading.Semaphore(CPU_THREADS_MAX))


async def run_blocking(
    work: Callable[[], T], purpose: str = "io", threads_max: int = IO_THREADS_MAX
) -> T:
    """Run a blocking call on the process's bounded threads, of which each purpose has its own:
    those that wait for a turn of the cores do not keep others from the store."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(thread_pool(purpose, threads_max), work)
