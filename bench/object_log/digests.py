"""What digests cost: a reader that checks them against one that checks nothing, a writer likewise.

A digest runs at memory speed, so both targets leave it a twentieth of the time. A reader is
compared with the library itself and ``verify=False``, a writer with one whose digests are not
computed. The processor's time per MB of both is shown beside it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest.mock import patch

from bench.object_log.bulk import load
from bench.object_log.workload import fresh_store, label, make_batches, rate, size_of
from bench.places import Place
from bench.results import Figure
from bench.session import Session
from stratalog import LogReader, LogWriter, ReaderOptions
from stratalog.objectlog.options import KIB
from stratalog.objectlog.stored import fragment, object_digest, snapshot
from stratalog.store import closing

TARGET = 0.95


async def digests(session: Session) -> None:
    for place in session.places:
        for record_bytes in (1 * KIB, 8 * KIB):
            await _reading(session, place, record_bytes)
            await _writing(session, place, record_bytes)


async def _reading(session: Session, place: Place, record_bytes: int) -> None:
    url = place.new()
    batches = make_batches(session.amount(96, 8), record_bytes)
    async with LogWriter.open(url, create=True) as log:
        await load(log, batches)
    megabytes = size_of(batches) / 1e6

    async def iterating(*, verify: bool) -> float:
        started_s = time.perf_counter()
        async with LogReader.open(url, options=ReaderOptions(verify=verify)) as reader:
            async for _ in reader.batches():
                pass
        return megabytes / (time.perf_counter() - started_s)

    async def to_table(*, verify: bool) -> float:
        started_s = time.perf_counter()
        async with LogReader.open(url, options=ReaderOptions(verify=verify)) as reader:
            await reader.to_arrow()
        return megabytes / (time.perf_counter() - started_s)

    for name, side in (("iteration", iterating), ("to_arrow", to_table)):
        await session.compare(
            question="digests",
            name=f"verified {name}, {label(record_bytes)} records",
            place=place.name,
            against="unverified",
            unit="MB/s",
            bound="at least",
            target=TARGET,
            baseline=partial(side, verify=False),
            ours=partial(side, verify=True),
        )
    place.drop(url)


async def _writing(session: Session, place: Place, record_bytes: int) -> None:
    batches = make_batches(session.amount(64, 16), record_bytes)
    megabytes = size_of(batches) / 1e6
    spent_ms: dict[str, list[float]] = {"with": [], "without": []}

    async def appending(how: str) -> float:
        started_s = time.process_time()
        async with fresh_store(place) as store, LogWriter.open(store, create=True) as log:
            found = await rate(batches, load(log, batches))
        spent_ms[how].append(1e3 * (time.process_time() - started_s) / megabytes)
        return found

    async def without() -> float:
        with _no_digests():
            return await appending("without")

    await session.compare(
        question="digests",
        name=f"append_many, {label(record_bytes)} records",
        place=place.name,
        against="without digests",
        unit="MB/s",
        bound="at least",
        target=TARGET,
        baseline=without,
        ours=partial(appending, "with"),
    )
    for how, several in spent_ms.items():
        session.record(
            Figure(
                question="digests",
                name=f"append_many {how} digests, {label(record_bytes)} records",
                place=place.name,
                unit="ms of CPU per MB",
                value=sorted(several)[len(several) // 2],
            )
        )


@contextmanager
def _no_digests() -> Iterator[None]:
    """Every digest is the same, and costs nothing."""

    def nothing(_data: bytes) -> str:
        return "0" * 32

    with ExitStack() as patches:
        for module in (fragment, snapshot, object_digest, closing):
            patches.enter_context(patch.object(module, "digest_of", nothing))
        yield
