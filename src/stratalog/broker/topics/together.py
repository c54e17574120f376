"""Doing the same for many things, a few at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from stratalog.invariants import invariant

T = TypeVar("T")
R = TypeVar("R")


async def for_each(do: Callable[[T], Awaitable[R]], things: Iterable[T], at_once: int) -> list[R]:
    """The results, in the order of the things. If one fails, no further one begins, and the error
    is raised when those that had begun have ended."""
    invariant(at_once > 0, "at least one at a time")
    todo = list(things)
    results: list[R | None] = [None] * len(todo)
    numbers = iter(range(len(todo)))

    async def work() -> None:
        for number in numbers:
            results[number] = await do(todo[number])

    async def work_on() -> BaseException | None:
        try:
            await work()
        except BaseException as error:
            for _ in numbers:  # nobody begins another
                pass
            if isinstance(error, asyncio.CancelledError):
                raise
            return error
        return None

    workers = min(at_once, len(todo))
    failures = await asyncio.gather(*(work_on() for _ in range(workers)))
    for failure in failures:
        if failure is not None:
            raise failure
    return results  # type: ignore[return-value]  # every number was done
