"""How many requests a fork takes, for logs of very different length.

Each log is forked at its tail, where nothing has to be divided, and in its middle, inside a
fragment below the deepest nodes: there the fork reads a node on each level, and makes at most one.
The objects are in memory, and only the needed fragments have data.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from bench.object_log.counting import CountingStore
from bench.object_log.growth import RECORDS_PER_FRAGMENT, Growth, first_offset_of
from bench.results import Figure, Series
from bench.session import Session
from stratalog import LogReader, Manifest, fork
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store.counted import CountedStore, Usage
from stratalog.store.memory import MemoryStore
from stratalog.store.prefixed import PrefixedStore
from stratalog.store.probes import probe
from stratalog.store.protocol import Store

PLACE = "memory"
SOURCE = "log"
FRAGMENTS = (5_000, 80_000, 1_400_000)
FRAGMENTS_QUICK = (140, 1_400, 14_000)
REPETITIONS = 9

TAIL, MIDDLE = "at the tail", "in the middle"

# A fork reads the roots of both logs, several times each. It writes its own root, twice, and the
# pin. A fork that divides the tree adds a node for each level, and the fragment it divides.
READS_MAX = 9
WRITES_MAX = 3
MANIFEST_BYTES_MAX = 32_000


@dataclass(frozen=True)
class Log:
    """A log to be forked, in a store that has room for forks."""

    memory: MemoryStore
    manifest: Manifest
    fragments: int

    @property
    def depth(self) -> int:
        return max(node.depth for node in self.manifest.snapshots)


@dataclass(frozen=True)
class Cost:
    """One fork; its time is the median of several that were alike."""

    log: Log
    where: str
    read: int
    written: int
    manifest_bytes: int
    seconds: float

    @property
    def requests(self) -> tuple[int, int]:
        return self.read, self.written


async def forking(session: Session) -> None:
    sizes = FRAGMENTS_QUICK if session.quick else FRAGMENTS
    costs: list[Cost] = []
    for number, fragments in enumerate(sizes):
        log = await _grown(fragments)
        probed = await _probed(log)
        if number == 0:
            _record_probe(session, probed)
        _record_log(session, log)
        for where, at in (
            (TAIL, log.manifest.tail.offset),
            (MIDDLE, first_offset_of(fragments // 2) + RECORDS_PER_FRAGMENT // 2),
        ):
            cost = await _fork(log, where, at)
            costs.append(cost)
            _record_figures(session, cost)
    _record_curves(session, costs)


async def _grown(fragments: int) -> Log:
    """A log under a prefix, so that its forks can lie beside it."""
    grown = CountingStore()
    growth = Growth(grown, fragments, with_data=(fragments // 2, fragments - 1))
    manifest = await growth.run()
    memory = MemoryStore("forks")
    source = PrefixedStore(memory, SOURCE)
    async for row in grown.list():
        await source.put_if_absent(row.path, (await grown.get(row.path)).data)
    return Log(memory, manifest, fragments)


async def _probed(log: Log) -> Usage:
    """The first fork on a store probes it, once per process. That is counted apart."""
    store = CountedStore(log.memory)
    await probe(store, DEFAULT_RUNTIME)
    return store.usage


async def _fork(log: Log, where: str, at: int) -> Cost:
    costs = [await _fork_once(log, where, at, number) for number in range(REPETITIONS)]
    first = costs[0]
    assert all(cost.requests == first.requests for cost in costs), "the forks are alike"
    return replace(first, seconds=median(cost.seconds for cost in costs))


async def _fork_once(log: Log, where: str, at: int, number: int) -> Cost:
    usage = Usage()
    source = CountedStore(PrefixedStore(log.memory, SOURCE), usage)
    target = PrefixedStore(log.memory, f"fork-{at}-{number}")
    started_s = time.perf_counter()
    await fork(source, CountedStore(target, usage), at=at)
    took_s = time.perf_counter() - started_s
    assert usage.free_requests == 0, "nothing is deleted"
    await _check(target, at)
    return Cost(
        log=log,
        where=where,
        read=usage.class_b_requests,
        written=usage.class_a_requests,
        manifest_bytes=len((await target.get(MANIFEST_PATH)).data),
        seconds=took_s,
    )


async def _check(store: Store, at: int) -> None:
    """The fork begins with the log and ends at ``at``, and its last record can be read."""
    async with LogReader.open(store) as reader:
        assert reader.first_offset == first_offset_of(0), "the fork begins where the log does"
        assert reader.tail == at, "the fork ends where it was asked to"
        [record] = [record async for record in reader.records(at - 1)]
        assert record.offset == at - 1, "the last record is there"


def _record_probe(session: Session, usage: Usage) -> None:
    name = "probe of the store, once in a process"
    _record(session, f"{name}: read", "requests", usage.class_b_requests)
    _record(session, f"{name}: written", "requests", usage.class_a_requests)


def _record_log(session: Session, log: Log) -> None:
    case = f"log of {log.fragments:,} fragments"
    _record(session, f"{case}: depth", "levels", log.depth)
    _record(session, f"{case}: its manifest", "bytes", len(log.manifest.to_json()))


def _record_figures(session: Session, cost: Cost) -> None:
    case = f"fork {cost.where} of {cost.log.fragments:,} fragments"
    more = cost.log.depth + 1 if cost.where == MIDDLE else 0
    _record(session, f"{case}: read", "requests", cost.read, READS_MAX + more)
    _record(session, f"{case}: written", "requests", cost.written, WRITES_MAX + more)
    _record(session, f"{case}: its manifest", "bytes", cost.manifest_bytes, MANIFEST_BYTES_MAX)
    _record(session, f"{case}: time", "ms", 1e3 * cost.seconds)


def _record(
    session: Session, name: str, unit: str, value: float, target: float | None = None
) -> None:
    session.record(
        Figure(question="forking", name=name, place=PLACE, unit=unit, value=value, target=target)
    )


def _record_curves(session: Session, costs: Sequence[Cost]) -> None:
    for where in (TAIL, MIDDLE):
        for what in ("read", "written"):
            chosen = [cost for cost in costs if cost.where == where]
            session.record(
                Series(
                    question="forking",
                    name=f"{where}: {what}",
                    place=PLACE,
                    x_unit="fragments in the log",
                    y_unit="requests, logarithmic",
                    x=[float(cost.log.fragments) for cost in chosen],
                    y=[float(getattr(cost, what)) for cost in chosen],
                )
            )
