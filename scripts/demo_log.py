"""`./dev demo log`: a million small records from many concurrent appenders, and what that cost.

Writes to a temporary directory, reads everything back verified, draws the tree that has grown
meanwhile, and shows requests, bytes and time. Then it looks after the log: a cursor lets half of it
go, the space comes back, and the rest is examined. It branches the log without copying it. In the
end comes the proof: a log whose writers are killed while it is collected, swept, pinned and forked,
and every record of it accounted for. The directory is removed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from itertools import islice

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

import stratalog as sl
from bench.metered_store import MeteredStore, StoreStats
from stratalog.cli import output
from stratalog.cli.commands.check.soak import show, watching
from stratalog.cli.commands.check.verify import show as show_verified
from stratalog.cli.commands.log.tree import load_tree, picture
from stratalog.cli.reply import Reply
from stratalog.objectlog.check.scrub_log import scrub
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.soak import SoakOptions, soak
from stratalog.store import DirectoryStore

RECORDS = 1_000_000
APPENDERS = 1_000
BURST = 20
BODY_BYTES = 100
PROOF_S = 10.0


@dataclass(frozen=True)
class Phase:
    """How long one part of the demo took, and what the store was asked for meanwhile."""

    name: str
    seconds: float
    stats: StoreStats


@dataclass(frozen=True)
class Care:
    """What one of the jobs that look after a log has deleted or examined."""

    phase: Phase
    verb: str
    records: int
    objects: int
    size: int


def body_of(number: int) -> bytes:
    """A hundred bytes that look like a small event."""
    event = f'{{"order": {number}, "customer": {number * 7919 % 99_991}, "note": "'
    return (event.ljust(BODY_BYTES - 2, ".") + '"}').encode()


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; one line in the end elsewhere."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=output.console()) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


async def write(store: DirectoryStore, records: int) -> Phase:
    """Every appender sends a few records, and waits for their answers before it sends more."""
    metered = MeteredStore(store)
    numbers = iter(range(records))
    acknowledged = 0
    seconds = stopwatch()
    with progress(f"writing from {APPENDERS:,} appenders", records) as show:
        async with sl.LogWriter.open(metered, writer="demo", create=True) as log:

            async def appender() -> None:
                nonlocal acknowledged
                while burst := list(islice(numbers, BURST)):
                    answers = [log.submit(body_of(number)) for number in burst]
                    for answer in answers:
                        await answer
                    acknowledged += len(burst)
                    show(acknowledged)

            async with asyncio.TaskGroup() as group:
                for _ in range(min(APPENDERS, records)):
                    group.create_task(appender())
    return Phase("write", seconds(), metered.stats())


async def read_back(store: DirectoryStore, records: int) -> Phase:
    """Every record is hashed against the log's setsum, and the bodies are those that were sent."""
    metered = MeteredStore(store)
    seconds = stopwatch()
    seen = bytearray(records)
    done = 0
    with progress("reading back, verified", records) as show:
        async with sl.LogReader.open(metered) as log, aclosing(log.batches()) as batches:
            async for batch in batches:
                for body in batch.column(2).to_pylist():
                    seen[int(body[10 : body.index(b",")])] += 1
                done += batch.num_rows
                show(done)
    if seen.count(1) != records or done != records:
        raise sl.errors.Corrupt(f"{records - seen.count(1)} records are missing or doubled")
    return Phase("read", seconds(), metered.stats())


async def look_after(store: DirectoryStore, records: int) -> list[Care]:
    """Let go of half of the log, give back the space, and examine what is left."""
    cursor = await sl.CursorStore(store).create("demo", 1)
    await cursor.move(1 + records // 2)

    metered, seconds = MeteredStore(store), stopwatch()
    at_once = sl.CollectorOptions(interval_s=0.0)
    went = await sl.collect(metered, options=at_once)
    gone = went.removed.fragments + went.removed.snapshots
    phase = Phase("collect", seconds(), metered.stats())
    cares = [Care(phase, "deleted", went.records, gone, went.fragment_bytes)]

    metered, seconds = MeteredStore(store), stopwatch()
    swept = await sweep(metered)
    phase = Phase("sweep", seconds(), metered.stats())
    cares.append(Care(phase, "deleted", 0, swept.deleted.objects, swept.deleted.bytes))

    metered, seconds = MeteredStore(store), stopwatch()
    with progress("examining what is left", records - went.records) as show:
        report = await scrub(metered, on_progress=lambda so_far: show(so_far.records))
    if not report.clean:
        raise sl.errors.Corrupt(f"{len(report.damages)} objects are damaged")
    phase = Phase("scrub", seconds(), metered.stats())
    examined = report.fragments + report.snapshots
    cares.append(Care(phase, "examined", report.records, examined, report.num_bytes))
    return cares


async def branch(store: DirectoryStore, target: DirectoryStore) -> None:
    """A fork that shares what its source has, takes a record of its own, and is verified."""
    source, fork, seconds = MeteredStore(store), MeteredStore(target), stopwatch()
    forked = await sl.fork(source, fork)
    requests = source.stats().requests + fork.stats().requests
    written = source.stats().bytes_written + fork.stats().bytes_written
    async with sl.LogWriter.open(target, writer="experiment") as log:
        await log.append(b"only in the fork")
    shared = forked.at - forked.first_offset
    output.say(
        f"\nA fork of it shares {shared:,} records and copies none: {requests} requests, "
        f"{output.size(written)} written, {seconds():.2f} s."
    )
    report = await sl.verify(target)
    show_verified(report)
    if not report.proven:
        raise sl.errors.Corrupt("the fork is not what it promises to be")


async def prove(store: DirectoryStore, seconds: float) -> None:
    """Writers that die in the middle of their work, and every record of theirs found once."""
    options = SoakOptions(rate=2_000.0, duration_s=seconds, life_s=2.0, chore_s=1.0)
    output.say("\nThe proof: writers are killed at random, and nothing is lost or doubled.")
    with watching(seconds, shown=True) as watch:
        report = await soak(store, options=options, on_progress=watch)
    show(report, Reply())
    if not report.proven:
        raise sl.errors.Corrupt("the soak broke a promise")


def stopwatch() -> Callable[[], float]:
    """How many seconds have passed since this was called."""
    clock = asyncio.get_running_loop().time
    started_s = clock()
    return lambda: clock() - started_s


def came_back(cares: list[Care]) -> Table:
    """What was deleted and examined, a column for each job."""
    table = Table(title="Looking after it", title_justify="left")
    table.add_column("")
    for care in cares:
        table.add_column(care.phase.name, justify="right")

    def row(name: str, cell: Callable[[Care], str]) -> None:
        table.add_row(name, *map(cell, cares))

    row("", lambda care: care.verb)
    row("records", lambda care: f"{care.records:,}")
    row("objects", lambda care: f"{care.objects:,}")
    row("bytes", lambda care: output.size(care.size))
    table.add_section()
    row("requests", lambda care: f"{care.phase.stats.requests:,}")
    row("seconds", lambda care: f"{care.phase.seconds:.1f}")
    return table


def costs(phases: list[Phase], records: int) -> Table:
    """Requests, bytes, time and rates, a column for each phase."""
    table = Table(title="What it cost", title_justify="left")
    table.add_column("")
    for phase in phases:
        table.add_column(phase.name, justify="right")

    def row(name: str, cell: Callable[[Phase], str]) -> None:
        table.add_row(name, *map(cell, phases))

    row("records", lambda _: f"{records:,}")
    row("seconds", lambda phase: f"{phase.seconds:.1f}")
    row("records/s", lambda phase: f"{records / phase.seconds:,.0f}")
    row("MB/s of bodies", lambda phase: f"{records * BODY_BYTES / phase.seconds / 1e6:.1f}")
    table.add_section()
    for name in phases[0].stats.operations:
        if any(phase.stats.operations[name].count for phase in phases):
            cells = [requests(phase.stats, name) for phase in phases]
            table.add_row(f"{name} requests", *cells)
    row("all requests", lambda phase: f"{phase.stats.requests:,}")
    row("records/request", lambda phase: f"{records / phase.stats.requests:,.0f}")
    table.add_section()
    row("bytes written", lambda phase: output.size(phase.stats.bytes_written))
    row("bytes read", lambda phase: output.size(phase.stats.bytes_read))
    return table


def requests(stats: StoreStats, name: str) -> str:
    operation = stats.operations[name]
    if not operation.count:
        return "0"
    return f"{operation.count:,} (p50 {operation.p50_s * 1000:.1f} ms)"


async def demo(records: int, soak_s: float) -> None:
    with tempfile.TemporaryDirectory(prefix="stratalog-demo-") as folder:
        store = DirectoryStore(f"{folder}/orders")
        output.say(f"A log of {records:,} records of {BODY_BYTES} bytes in {folder}\n")
        phases = [await write(store, records), await read_back(store, records)]
        output.say("")
        output.draw(picture(*await load_tree(store)))
        output.say("")
        output.draw(costs(phases, records))
        output.say("Every record came back once, with the hash it was written with.\n")
        cares = await look_after(store, records)
        output.draw(came_back(cares))
        output.say("What the cursor let go of is gone, and the rest is whole.")
        await branch(store, DirectoryStore(f"{folder}/experiment"))
        await prove(DirectoryStore(f"{folder}/soak"), soak_s)
    output.say("\nTry your own: ./dev python -m stratalog --help")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev demo log", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS, help="how many (%(default)s)")
    parser.add_argument(
        "--proof", type=float, default=PROOF_S, help="how many seconds it lasts (%(default)s)"
    )
    arguments = parser.parse_args()
    if arguments.records < 1:
        parser.error("--records is at least 1")
    if arguments.proof <= 0:
        parser.error("--proof is a number of seconds")
    try:
        asyncio.run(demo(arguments.records, arguments.proof))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
