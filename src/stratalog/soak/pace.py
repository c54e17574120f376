"""How fast to write: a rate that wanders, with bursts and silences.

Real load is never even, and even load finds nothing. The rate stays for a while between a quarter
and twice the requested one. Now and then it is many times that for a moment, or zero, though not in
the beginning. All of it is drawn from the given source of randomness, so a seed determines it.
"""

from collections.abc import Callable

SLOWEST, FASTEST = 0.25, 2.0
BURST = 8.0


class Pace:
    """Says how many records are due at which time."""

    def __init__(self, rate: float, random: Callable[[], float]) -> None:
        self._rate = rate
        self._random = random
        self._at_s = 0.0
        self._until_s = 0.0
        self._due = 0.0
        self.current = rate
        """Records per second at this moment."""

    def due(self, elapsed_s: float) -> int:
        """How many records should have been written since the beginning."""
        while self._at_s < elapsed_s:
            if self._at_s >= self._until_s:
                self._change()
            end_s = min(self._until_s, elapsed_s)
            self._due += self.current * (end_s - self._at_s)
            self._at_s = end_s
        return int(self._due)

    def _change(self) -> None:
        kind = self._random()
        if kind < 0.1 and self._at_s > 0:
            self.current, length_s = 0.0, self._between(0.2, 2.0)
        elif kind < 0.2:
            self.current, length_s = BURST * self._rate, self._between(0.05, 0.25)
        else:
            factor: float = SLOWEST * (FASTEST / SLOWEST) ** self._random()
            self.current, length_s = factor * self._rate, self._between(0.5, 3.0)
        self._until_s = self._at_s + length_s

    def _between(self, low: float, high: float) -> float:
        return low + (high - low) * self._random()
