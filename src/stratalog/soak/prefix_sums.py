"""The sum of any stretch of the log, from having read the log once.

At the end of each batch the setsum of all records read so far is kept. The difference of two is the
sum of the records between. Another way to read that stretch (a scan, a pin, a fork) must come to
the same sum. Only the newest sums are kept.
"""

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
    """Sums up to the ends of the last batches."""

    def __init__(self, first_offset: int) -> None:
        self._marks: deque[tuple[int, Setsum]] = deque([(first_offset, EMPTY)], maxlen=KEPT_MAX)

    def add(self, limit: int, batch_sum: Setsum) -> None:
        """Add the next batch, which ends before ``limit``."""
        self._marks.append((limit, self._marks[-1][1] + batch_sum))

    def offsets(self, low: int = 0, high: int | None = None) -> list[int]:
        """The offsets between two others at which a stretch may begin and end."""
        known = (offset for offset, _ in self._marks if offset >= low)
        return [offset for offset in known if high is None or offset <= high]

    def draw(
        self, random: Callable[[], float], low: int = 0, high: int | None = None
    ) -> tuple[int, int] | None:
        """A random stretch between two offsets, if there is one."""
        offsets = self.offsets(low, high)
        if len(offsets) < 2:
            return None
        first = int(random() * (len(offsets) - 1))
        last = first + 1 + int(random() * (len(offsets) - 1 - first))
        return offsets[first], offsets[last]

    def between(self, first: int, limit: int) -> Setsum | None:
        """The sum of a stretch. None once its ends are forgotten."""
        known = dict(self._marks)
        if first not in known or limit not in known:
            return None
        return known[limit] - known[first]
