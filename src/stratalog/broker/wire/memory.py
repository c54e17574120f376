"""The memory for requests, of all connections together."""

from collections import deque
from collections.abc import Callable


class RequestMemory:
    """Counts the bytes of requests that are arriving or being handled, and lets the next wait."""

    __slots__ = ("_waiting", "bytes_max", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def is_short(self) -> bool:
        """Somebody waits."""
        return bool(self._waiting)

    def take(self, size: int, when_granted: Callable[[], None]) -> bool:
        """Take it now, or be called when it has been taken. In the order of the calls.

        One request is let in however large it is, if it is alone.
        """
        if not self._waiting and (self.used + size <= self.bytes_max or not self.used):
            self.used += size
            return True
        self._waiting.append((size, when_granted))
        return False

    def count(self, size: int) -> None:
        """Of a small request that is there already."""
        self.used += size

    def release(self, size: int) -> None:
        self.used -= size
        self._grant()

    def _grant(self) -> None:
        """Let in whoever may be, in the order in which they came."""
        while self._waiting:
            wanted, when_granted = self._waiting[0]
            if self.used and self.used + wanted > self.bytes_max:
                return
            self._waiting.popleft()
            self.used += wanted
            when_granted()

    def forget(self, when_granted: Callable[[], None]) -> None:
        """Whoever waited for it has gone."""
        self._waiting = deque(each for each in self._waiting if each[1] != when_granted)
        self._grant()  # the next may be smaller
