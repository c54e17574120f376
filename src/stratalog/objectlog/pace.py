"""Whether callers that move in step are better served all at once or in two halves.

Callers that wait for the same fragment are answered together, and come back together. All at once:

    we       encode │               │ answer │ encode │               │ answer
    store           │ put, manifest │                 │ put, manifest │

In two halves one is stored while the other is answered, at the price of twice as many fragments
and manifests. That pays where most of the time is the store's: not for a fast disk, where answering
a thousand callers takes as long as to store what they sent.
"""

from __future__ import annotations

SLOW = 2.0
"""How often the time to answer fits into that of a slow store."""

_WEIGHT = 0.25


class Pace:
    """How long the store took lately, and a caller to be answered and to come back."""

    __slots__ = ("_answered", "_answered_s", "_caller_s", "_storing_s")

    def __init__(self) -> None:
        self._storing_s = self._caller_s = self._answered_s = 0.0
        self._answered = 0

    def store_is_slow(self, callers: int) -> bool:
        """Whether to divide so many callers. It is taken for slow until it is known."""
        return self._storing_s >= SLOW * self._caller_s * callers

    def stored(self, took_s: float) -> None:
        """A fragment was put and linked in this time."""
        self._storing_s += (took_s - self._storing_s) * _WEIGHT

    def answered(self, callers: int, now_s: float) -> None:
        """So many are about to be answered."""
        self._answered, self._answered_s = callers, now_s

    def returned(self, now_s: float) -> None:
        """They have been, and are back if they wanted to."""
        if self._answered:
            took_s = (now_s - self._answered_s) / self._answered
            self._caller_s += (took_s - self._caller_s) * _WEIGHT
            self._answered = 0
