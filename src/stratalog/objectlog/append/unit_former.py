"""When the next unit starts, and what goes into it.

A full one starts as soon as an upload is free. A small one starts when nothing uploads or waits to
be linked; until then it gathers. So an idle log writes at once, and under load fragments grow
rather than their number.

Callers that move in step may be divided into halves (``pace.py``), of which one is uploaded while
the other is answered. A half that is complete may start beside the other.

Offsets are given out when a unit is formed, in the hope that all earlier ones are linked.
"""

import asyncio

from stratalog.objectlog.append.accumulator import Accumulator, Submission
from stratalog.objectlog.append.context import WriterContext
from stratalog.objectlog.append.pace import Pace
from stratalog.objectlog.append.units import Draft, Half, Unit, UnitsUnderWay, divide, fragments_for
from stratalog.objectlog.stored import Manifest

COMPLETE = 0.75
"""A half is complete when it has this part of the size that the other one has."""


class UnitFormer:
    def __init__(
        self,
        context: WriterContext,
        accumulator: Accumulator,
        units: UnitsUnderWay,
        manifest: Manifest,
    ) -> None:
        self._accumulator = accumulator
        self._units = units
        self._options = context.options
        self._runtime = context.runtime
        self._started_s = float("-inf")
        self._next_offset = self._next_seq_no = self._timestamp_us = 0
        self.pace = Pace()
        self.fragments_max = context.options.uploads_max
        """How many fragments may be under way."""
        self.begin_at_tail(manifest)

    def begin_at_tail(self, manifest: Manifest) -> None:
        """Continue where the linked log ends."""
        self._next_offset = manifest.tail.offset
        self._next_seq_no = manifest.next_seq_no
        self._timestamp_us = manifest.tail.timestamp_us

    def fits(self, submission: Submission) -> bool:
        """Whether it would land where it expects to."""
        return submission.expected_offset in (None, self._next_offset)

    def may_start(self, uploading: int) -> bool:
        """Whether the next unit may start beside so many that upload."""
        if self._units.fragments >= self.fragments_max:
            return False
        waiting, full = self._accumulator.bytes, self._options.fragment_bytes
        if waiting >= full:
            return True
        unlinked, last = self._units.unlinked, self._units.last
        if last is None or last.half is None:
            return not unlinked and not uploading
        if not self._divides():
            return False  # The halves wait for each other, and are one again.
        if not unlinked:
            return True
        return unlinked == 1 and last.half == "second" and waiting >= COMPLETE * last.size

    def _divides(self) -> bool:
        if self._options.interval_s:
            return False  # Half of the callers would wait for one interval more.
        return self.pace.divides(len(self._accumulator) + self._units.submissions)

    def wait_s(self) -> float:
        """How long a small unit has to wait for the end of the interval."""
        if not self._is_paced():
            return 0.0
        now_s = asyncio.get_running_loop().time()
        return max(0.0, self._started_s + self._options.interval_s - now_s)

    def _is_paced(self) -> bool:
        full = self._accumulator.bytes >= self._options.fragment_bytes
        return bool(self._options.interval_s) and not full

    def form(self) -> Unit:
        """Take submissions until a fragment is full. A large batch is a unit of its own."""
        if self._is_paced():
            self._started_s = asyncio.get_running_loop().time()
        full, waiting = self._options.fragment_bytes, self._accumulator.bytes
        limit = waiting if fragments_for(waiting, full) == 1 else full
        last = self._units.last
        half: Half | None = None
        if last is not None:
            half = "second" if last.half and waiting == limit else None
        elif full // 2 <= waiting == limit and self._divides():
            half, limit = "first", waiting // 2
        taken, bodies, size = self._accumulator.take(limit, self._next_offset)
        if half == "first" and min(size, waiting - size) < COMPLETE * max(size, waiting - size):
            half = None
            self._accumulator.push_back(taken)
            taken, bodies, size = self._accumulator.take(waiting, self._next_offset)
        self._timestamp_us = max(self._timestamp_us, self._runtime.now_us())
        count = min(fragments_for(size, full), self._options.manifest_fragments_max)
        drafts = [self._draft(*part) for part in divide(bodies, size, count)]
        return Unit(taken, drafts, self._timestamp_us, half)

    def _draft(self, bodies: list[bytes], size: int) -> Draft:
        draft = Draft(bodies, size, self._next_offset, self._next_seq_no)
        self._next_offset += len(bodies)
        self._next_seq_no += 1
        return draft
