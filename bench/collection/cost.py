"""How many objects a collection reads, writes and deletes, phase by phase.

Measured twice: prefixes of different length of one very long log, and the same prefix of logs of
different length. The first cost should grow with the dropped records, the second not at all. The
objects are in memory, without the data of the fragments: only requests count here.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bench.metered_store import MeteredStore, StoreStats
from bench.object_log.counting import CountingStore
from bench.object_log.growth import Growth, first_offset_of
from bench.results import Figure, Series
from bench.session import Session
from stratalog import Collector, CollectorOptions, CursorStore
from stratalog.objectlog.collection.delete_unreachable import Removed
from stratalog.objectlog.stored.plan import Garbage

PLACE = "memory"
FRAGMENTS = (14_000, 140_000, 1_400_000)
FRAGMENTS_QUICK = (1_400, 4_200, 14_000)
SHARES = (0.01, 0.1, 0.5)

# A path through a tree of three levels, or two where a single child has to move: and on each level
# 64 entries that go or stay, of about 350 bytes each.
NODES_MADE_MAX = 6
PLAN_BYTES_MAX = 80_000

PHASES = ("compute", "publish", "delete")
READS = ("get", "get_range", "head", "list")
WRITES = ("put_if_absent", "put_if_match")


@dataclass(frozen=True)
class Phase:
    """The requests of one phase."""

    read: int
    written: int
    deleted: int


@dataclass(frozen=True)
class Cost:
    """One collection."""

    log_fragments: int
    dropped_fragments: int
    phases: dict[str, Phase]
    plan_nodes: int
    plan_bytes: int
    seconds: float


async def cost(session: Session) -> None:
    sizes = FRAGMENTS_QUICK if session.quick else FRAGMENTS
    logs = {size: await _grown(size) for size in sizes}
    longest = sizes[-1]
    prefixes = [round(share * longest) for share in SHARES]
    same = sizes[0] // 2
    _record(
        session,
        "prefix",
        "fragments dropped",
        [await _collect(logs[longest], longest, prefix) for prefix in prefixes],
        [float(prefix) for prefix in prefixes],
    )
    _record(
        session,
        "log-size",
        f"fragments in the log, of which {same:,} are dropped",
        [await _collect(logs[size], size, same) for size in sizes],
        [float(size) for size in sizes],
    )


async def _grown(fragments: int) -> CountingStore:
    store = CountingStore()
    await Growth(store, fragments).run()
    return store


async def _collect(log: CountingStore, fragments: int, dropped: int) -> Cost:
    """Collect a prefix of a copy of the log."""
    store = MeteredStore(log.copy())
    await CursorStore(store.inner).create("keeper", first_offset_of(dropped))
    collector = Collector(store, options=CollectorOptions(interval_s=0.0))
    phases: dict[str, Phase] = {}

    async def phase(name: str, work: Callable[[], Awaitable[object]]) -> object:
        before = store.stats()
        done = await work()
        removed = done.fragments + done.snapshots if isinstance(done, Removed) else 0
        phases[name] = Phase(
            _requests(before, store.stats(), READS),
            _requests(before, store.stats(), WRITES),
            removed,
        )
        return done

    started_s = time.perf_counter()
    plan = await phase("compute", collector.compute)
    await phase("publish", collector.publish)
    removed = await phase("delete", collector.delete)
    took_s = time.perf_counter() - started_s
    assert isinstance(plan, Garbage)
    assert isinstance(removed, Removed)
    assert removed.fragments == dropped == plan.fragments, "what was asked for is gone"
    return Cost(
        log_fragments=fragments,
        dropped_fragments=dropped,
        phases=phases,
        plan_nodes=len(plan.snapshots_to_make),
        plan_bytes=len(plan.to_json()),
        seconds=took_s,
    )


def _requests(before: StoreStats, after: StoreStats, operations: Sequence[str]) -> int:
    return sum(after.operations[name].count - before.operations[name].count for name in operations)


def _record(
    session: Session, question: str, x_unit: str, costs: Sequence[Cost], x: list[float]
) -> None:
    for phase in PHASES:
        for what in ("read", "written", "deleted"):
            counts = [float(getattr(each.phases[phase], what)) for each in costs]
            if any(counts):
                session.record(
                    Series(
                        question=question,
                        name=f"{phase}: {what}",
                        place=PLACE,
                        x_unit=x_unit,
                        y_unit="objects, logarithmic",
                        x=x,
                        y=counts,
                    )
                )
    for each in costs:
        _record_figures(session, question, each)


def _record_figures(session: Session, question: str, cost: Cost) -> None:
    case = f"{cost.dropped_fragments:,} of {cost.log_fragments:,} fragments"
    before, after = (cost.phases["compute"], cost.phases["publish"]), cost.phases["delete"]

    def record(name: str, unit: str, value: float, target: float | None = None) -> None:
        session.record(
            Figure(
                question=question,
                name=f"{case}: {name}",
                place=PLACE,
                unit=unit,
                value=value,
                target=target,
            )
        )

    record("nodes made", "nodes", cost.plan_nodes, NODES_MADE_MAX)
    record("plan", "bytes", cost.plan_bytes, PLAN_BYTES_MAX)
    record("read before deleting", "objects", sum(phase.read for phase in before))
    record("written before deleting", "objects", sum(phase.written for phase in before))
    record("read to delete", "objects", after.read)
    record("deleted", "objects", after.deleted)
    record("all phases", "s", cost.seconds)
