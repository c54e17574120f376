"""What callers hear about their submissions: where they are in the log, or why they are not."""

from collections.abc import Iterable

from stratalog.errors import StratalogError
from stratalog.objectlog.append.accumulator import Submission, UnwatchedFuture
from stratalog.objectlog.append.units import Unit
from stratalog.objectlog.stats import WriterCounters

FAILURES_KEPT_MAX = 1000


class Answers:
    """Answers the callers of one writer, and keeps the failures that nobody may have noticed."""

    def __init__(self, counters: WriterCounters) -> None:
        self._counters = counters
        self._failed: list[UnwatchedFuture] = []

    def acknowledge(self, unit: Unit, submissions: list[Submission], now_s: float) -> int:
        """Answer the callers of a linked unit. Gives the offset after its last record."""
        counters = self._counters
        counters.appends.add(now_s - submissions[0].called_s)
        counters.records += sum(len(draft.bodies) for draft in unit.drafts)
        counters.record_bytes += sum(draft.size for draft in unit.drafts)
        offset, timestamp_us = unit.drafts[0].first_offset, unit.timestamp_us
        for submission in submissions:
            if not submission.future.done():
                submission.succeed(offset, timestamp_us)
            offset += len(submission.bodies)
        return offset

    def fail(self, submissions: Iterable[Submission], error: StratalogError) -> None:
        for submission in submissions:
            submission.fail(error)
            future = submission.future
            if isinstance(future, UnwatchedFuture) and len(self._failed) < FAILURES_KEPT_MAX:
                self._failed.append(future)

    def take_unseen_failure(self) -> StratalogError | None:
        """The first failure of a `submit` whose future nobody has looked at, and forget them."""
        failed, self._failed = self._failed, []
        unseen = [each.exception() for each in failed if not each.cancelled() and not each.seen]
        first = next((error for error in unseen if isinstance(error, StratalogError)), None)
        return None if first is None else first.copy()
