"""A bounded cache of immutable objects, least recently used first to go.

Nothing in it can be stale: a path is never used twice. Only its size needs watching.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class ByteCache(Generic[V]):
    """Values by path, within a budget of bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        self._values: OrderedDict[str, tuple[V, int]] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, path: str) -> V | None:
        found = self._values.get(path)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._values.move_to_end(path)
        return found[0]

    def put(self, path: str, value: V, size: int) -> None:
        if size > self._bytes_max or path in self._values:
            return
        self._values[path] = (value, size)
        self.bytes += size
        while self.bytes > self._bytes_max:
            _, (_, dropped) = self._values.popitem(last=False)
            self.bytes -= dropped

    def clear(self) -> None:
        self._values.clear()
        self.bytes = 0
