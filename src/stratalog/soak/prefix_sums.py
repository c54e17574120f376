"""What any stretch of the log adds up to, known from having read the log once.

The setsum of all that was read so far is kept at the end of each batch. The difference of two is
the sum of what lies between, so whatever reads that stretch by another way (a scan, a pin, a fork)
must come to the same. Only the newest ones are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pyarrow as pa

from stratalog.objectlog.stored import sum_of_records
from stratalog.setsum import EMPTY, Setsum

KEPT_MAX = 4096


def sum_of_batch(batch: pa.RecordBatch) -> Setsum:
    """Hash every record of a batch."""
    offsets, times_us = batch.column(0).to_numpy(), batch.column(1).to_numpy()
    return sum_of_records(offsets, times_us, batch.column(2))


class PrefixSums:
    """Sums up to the ends of the batches that were read last."""

    def __init__(self, first_offset: int) -> None:
        self._marks: deque[tuple[int, Setsum]] = deque([(first_offset, EMPTY)], maxlen=KEPT_MAX)

    def add(self, limit: int, batch_sum: Setsum) -> None:
        """A batch was read that follows the last one and ends before ``limit``."""
        self._marks.append((limit, self._marks[-1][1] + batch_sum))

    def offsets(self, low: int = 0, high: int | None = None) -> list[int]:
        """Where a stretch may begin and end, from one offset to another."""
        known = (offset for offset, _ in self._marks if offset >= low)
        return [offset for offset in known if high is None or offset <= high]

    def draw(
        self, random: Callable[[], float], low: int = 0, high: int | None = None
    ) -> tuple[int, int] | None:
        """Some stretch between two offsets, if there is one."""
        offsets = self.offsets(low, high)
        if len(offsets) < 2:
            return None
        first = int(random() * (len(offsets) - 1))
        last = first + 1 + int(random() * (len(offsets) - 1 - first))
        return offsets[first], offsets[last]

    def between(self, first: int, limit: int) -> Setsum | None:
        """The sum of a stretch. None once its beginning is forgotten."""
        known = dict(self._marks)
        if first not in known or limit not in known:
            return None
        return known[limit] - known[first]
