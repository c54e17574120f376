"""Many things, a few at a time: by their number, or by their size."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def gather_bounded(
    items: Iterable[T], work: Callable[[T], Awaitable[R]], at_once: int
) -> list[R]:
    """What ``work`` gives for each item, in their order; ``at_once`` of them are under way."""
    room = asyncio.Semaphore(at_once)

    async def one(item: T) -> R:
        async with room:
            return await work(item)

    return await asyncio.gather(*map(one, items))


def in_groups(
    items: Iterable[T],
    size_of: Callable[[T], float],
    size_max: float,
    count_max: int | None = None,
) -> Iterator[list[T]]:
    """Neighbours in groups of at most this size, and of one item at least."""
    group: list[T] = []
    size = 0.0
    for item in items:
        if group and (size + size_of(item) > size_max or len(group) == count_max):
            yield group
            group, size = [], 0.0
        group.append(item)
        size += size_of(item)
    if group:
        yield group
