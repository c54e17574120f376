"""Neighbours in groups of a bounded size."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


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
