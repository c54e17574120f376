"""Whether callers that move in step are better served all at once or in two halves.

Callers that wait for the same fragment are answered together, and come back together. All at once:

    we       encode │               │ answer │ encode │               │ answer
    store           │ put, manifest │                 │ put, manifest │

In two halves one is stored while the other is answered, at the price of twice as many fragments
and manifests. That pays where both take about as long. On a fast disk the second fragment takes
longer than what is gained, and behind a long wire there is nothing to gain: a thousand callers are
answered in the twentieth part of the time that S3 takes.
"""

DIVIDE_FROM, DIVIDE_UP_TO = 1.4, 6.0
"""How often the time to answer all of them fits into that of the store."""

_WEIGHT = 0.25


class Pace:
    """How long the store took lately, and a caller to be answered and to come back."""

    __slots__ = ("_answered", "_answered_s", "_caller_s", "_storing_s")

    def __init__(self) -> None:
        self._storing_s = self._caller_s = self._answered_s = 0.0
        self._answered = 0

    def divides(self, callers: int) -> bool:
        """Whether so many are better served in halves. It is tried once to get to know it."""
        answering_s = self._caller_s * callers
        if not answering_s:
            return not self._storing_s
        return DIVIDE_FROM <= self._storing_s / answering_s <= DIVIDE_UP_TO

    def stored(self, took_s: float) -> None:
        """The store took so long to put a fragment and a manifest."""
        self._storing_s += (took_s - self._storing_s) * _WEIGHT

    def answered(self, callers: int, now_s: float) -> None:
        """So many are about to be answered."""
        self._answered, self._answered_s = callers, now_s

    def returned(self, now_s: float, *, with_more: bool) -> None:
        """They were answered. Callers that did not return at once with more are not measured."""
        if self._answered and with_more:
            took_s = (now_s - self._answered_s) / self._answered
            self._caller_s += (took_s - self._caller_s) * _WEIGHT
        self._answered = 0
