"""The whole pipeline over a herd of twenty million records, and its memory.

Sampled is the memory of this process, its JVM and its workers together.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

from bench.pipeline.herds import make_herd, orders
from bench.pipeline.spark import DRIVER_MEMORY, seconds_of, spark
from bench.places import DirectoryPlace
from bench.results import Figure
from bench.session import Session
from stratalog.pipeline import RunOptions, run_pipeline

LOGS = 200
RECORDS = 100_000
KEYS = 1_000
PER_BATCH = 10_000
MEMORY_GB_MAX = 8.0
KEY = "substring(cast(body as string), 10, 6)"
SAMPLE_S = 0.25


async def whole(session: Session) -> None:
    for place in session.places:
        if isinstance(place, DirectoryPlace):
            await _measure(session, place)


async def _measure(session: Session, place: DirectoryPlace) -> None:
    logs, records = session.amount(LOGS, 8), session.amount(RECORDS, 1_000)
    per_batch = min(PER_BATCH, records)
    url = place.new()
    batches = [orders(per_batch, KEYS, first) for first in range(0, records, per_batch)]
    await make_herd(url, logs, batches)
    spark().range(1).count()
    memory = Memory()

    def run() -> None:
        report = run_pipeline(
            spark(), url, server="bench", merge=KEY, options=RunOptions(interval_s=0.0)
        )
        assert report.ok, report.error or report.troubles
        for stage in report.stages:
            figure(f"{stage.stage}, {logs} logs of {records:,} records", "s", stage.seconds)

    def figure(name: str, unit: str, value: float, target: float | None = None) -> None:
        session.record(
            Figure(
                question="whole",
                name=name,
                place=place.name,
                unit=unit,
                value=value,
                target=target,
            )
        )

    with memory:
        took_s = await asyncio.to_thread(seconds_of, run)
    figure(f"the whole pipeline, {logs} logs of {records:,} records", "s", took_s)
    figure(
        f"memory of all processes, JVM given {DRIVER_MEMORY}",
        "GB",
        memory.peak_bytes / 1e9,
        MEMORY_GB_MAX,
    )
    place.drop(url)


class Memory:
    """The peak memory of this process and its descendants together."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            self.peak_bytes = max(self.peak_bytes, resident_bytes(os.getpid()))
            time.sleep(SAMPLE_S)


def resident_bytes(root: int) -> int:
    """The proportional set size of a process and its descendants, from Linux."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(folder.name))
    total, left = 0, [root]
    while left:
        pid = left.pop()
        left += children.get(pid, [])
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total
