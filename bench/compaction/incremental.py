"""Compaction by key of a log with a tenth of new records: reading these, against reading all.

The log was compacted by the same rule before. A fifth of the new records overwrite the keys of its
first hundredth, the others any keys. So every fragment has some dead records, and a few have only
dead ones. Both runs drop the same records and store the same index. The full run reads all records,
the other one only the new ones.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path
from random import Random
from urllib.parse import urlparse

from bench.object_log.bulk import load
from bench.object_log.workload import FRAGMENT_BYTES, label, split
from bench.pairs import Side
from bench.pipeline.spark import spark
from bench.places import DirectoryPlace
from bench.session import Session
from stratalog import CompactOptions, LogWriter
from stratalog.objectlog.options import KIB
from stratalog.pipeline import compact_by_key

TARGET = 3.0
BASE_FRAGMENTS = 2048
NEW_SHARE = 10
KEY = "substring(body, 1, 12)"
KEY_BYTES = 12
OPTIONS = CompactOptions(interval_s=0.0)


async def incremental(session: Session) -> None:
    for place in session.places:
        if isinstance(place, DirectoryPlace):
            await _compare(session, place, 1 * KIB)


async def _compare(session: Session, place: DirectoryPlace, record_bytes: int) -> None:
    per_fragment = FRAGMENT_BYTES // record_bytes
    count = session.amount(BASE_FRAGMENTS, 256) * per_fragment
    template = place.new()
    folder = Path(urlparse(template).path)
    random = Random(1)
    new = [
        number // 5 % (count // 100) if number % 5 == 0 else random.randrange(count)
        for number in range(count // NEW_SHARE)
    ]
    await _append(template, range(count), record_bytes, per_fragment)
    await asyncio.to_thread(compact_by_key, spark(), template, KEY, options=OPTIONS)
    await _append(template, new, record_bytes, per_fragment)

    def timed(*, only_new: bool) -> Side:
        async def side() -> float:
            url = place.new()
            _copy(folder, Path(urlparse(url).path))
            try:
                started_s = time.perf_counter()
                done = await asyncio.to_thread(
                    compact_by_key, spark(), url, KEY, incremental=only_new, options=OPTIONS
                )
                took_s = time.perf_counter() - started_s
                assert done.records > 0, "something was dropped"
                assert done.read == len(new) + (0 if only_new else count), "as much as was new"
                return 1 / took_s
            finally:
                place.drop(url)

        return side

    await session.compare(
        question="incremental",
        name=f"a tenth is new, {label(record_bytes)} records, {count:,} before",
        place=place.name,
        against="a full run",
        unit="runs/s",
        bound="at least",
        target=TARGET,
        baseline=timed(only_new=False),
        ours=timed(only_new=True),
    )
    place.drop(template)


async def _append(url: str, keys: range | list[int], record_bytes: int, per_fragment: int) -> None:
    random = Random(len(keys))
    async with LogWriter.open(url, create=True) as log:
        for start in range(0, len(keys), 64 * per_fragment):
            some = keys[start : start + 64 * per_fragment]
            bodies = [b"%012d" % key + random.randbytes(record_bytes - KEY_BYTES) for key in some]
            await load(log, split(bodies, per_fragment))


def _copy(source: Path, target: Path) -> None:
    """A copy of the log. Fragments never change, so it shares their files."""
    for name in source.iterdir():
        copy = os.link if name.name == "log" else shutil.copy2
        shutil.copytree(name, target / name.name, copy_function=copy, dirs_exist_ok=True)
