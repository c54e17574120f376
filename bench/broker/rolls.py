"""The latency of produce while WAL files roll, against the same load while none does.

One client writes 64 kB batches at a steady pace. The bench watches the folder of the WAL: when the
set of its files changes, one has rolled, and its memtables go to segments. Batches that were sent
from a little before to a while after a roll count as beside it.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from bisect import bisect_left
from pathlib import Path

from bench.broker.client import fresh_topics, write_at_pace
from bench.broker.comparison import Comparison

TOTAL_BYTES = 2_000 * 1024 * 1024
QUICK_BYTES = 400 * 1024 * 1024
BATCH_BYTES = 64 * 1024
RATE = 20e6
QUICK_RATE = 80e6
BEFORE_S, AFTER_S = 0.2, 2.0
LOOK_EVERY_S = 0.02
P99_MS_MAX = 50.0
TIMES_MAX = 3.0


def rolls(comparison: Comparison) -> None:
    total = comparison.amount(TOTAL_BYTES, QUICK_BYTES)
    rate = QUICK_RATE if comparison.quick else RATE
    folder = comparison.ours.folder
    if folder is None:
        raise LookupError("the bench must know the data directory of our broker to see rolls")
    watch = _Watch(folder / "wal")
    with fresh_topics(comparison.ours) as [topic], watch:
        samples = write_at_pace(comparison.ours, topic, total, BATCH_BYTES, rate)
    beside = [latency_ms for sent_s, latency_ms in samples if watch.is_beside(sent_s)]
    apart = [latency_ms for sent_s, latency_ms in samples if not watch.is_beside(sent_s)]
    if len(beside) < 2 or len(apart) < 2:
        raise RuntimeError(f"{len(watch.rolled_s)} rolls seen: nothing to compare")
    of_beside, of_apart = (statistics.quantiles(each, n=100)[-1] for each in (beside, apart))
    at = f"at {rate / 1e6:.0f} MB/s"
    figure = comparison.figure
    figure("rolls", f"WAL rolls seen {at}", len(watch.rolled_s), "rolls")
    figure("rolls", f"p99 of produce without rolls {at}", of_apart, "ms")
    figure("rolls", f"p99 of produce beside rolls {at}", of_beside, "ms", P99_MS_MAX)
    figure("rolls", f"slowest produce beside rolls {at}", max(beside), "ms")
    figure("rolls", "p99 beside rolls by p99 without", of_beside / of_apart, "times", TIMES_MAX)


class _Watch:
    """Notes when files of the WAL come or go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch the WAL")
        self.rolled_s: list[float] = []

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def is_beside(self, at_s: float) -> bool:
        place = bisect_left(self.rolled_s, at_s - AFTER_S)
        return place < len(self.rolled_s) and self.rolled_s[place] <= at_s + BEFORE_S

    def _look(self) -> None:
        known = set(os.listdir(self._folder))
        while not self._stop.wait(LOOK_EVERY_S):
            now = set(os.listdir(self._folder))
            if now != known:
                self.rolled_s.append(time.perf_counter())
                known = now
