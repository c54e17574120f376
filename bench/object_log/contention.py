"""Two saturated writers and one that only changes the past, all at once on one log.

Each is a process of its own. Afterwards the log must hold exactly the acknowledged records.
"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec

from bench.object_log.workload import make_bodies
from bench.places import Place
from bench.processes import give_answer, run_module
from bench.results import Figure
from bench.session import Session
from stratalog import LogReader, LogWriter, WriterOptions, create_log, open_store
from stratalog.objectlog.options import KIB
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, decode_manifest
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store.cas import Landed, Patience, swap
from stratalog.store.protocol import Blob

CALLERS = 256
RECORD_BYTES = 1 * KIB
START_UP_S = 2.5
TIMEOUT_S = 60.0


class Progress(msgspec.Struct):
    """The result of one participant: records or changes, refusals, and its longest wait."""

    done: int
    refusals: int
    longest_wait_s: float


class Waits:
    """The longest time between two successes."""

    def __init__(self, started_s: float) -> None:
        self._last_s = started_s
        self.longest_s = 0.0

    def succeeded(self) -> None:
        now_s = time.perf_counter()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s


async def contention(session: Session) -> None:
    for place in session.places:
        url = place.new()
        await _compete(session, place, url)
        place.drop(url)


async def _compete(session: Session, place: Place, url: str) -> None:
    await create_log(url)
    seconds = session.amount(10, 1)
    begin = time.time() + START_UP_S
    first, second, past = await asyncio.gather(
        *(
            run_module(
                "bench.object_log.contention", role, url, str(begin), str(seconds), answer=Progress
            )
            for role in ("writer", "writer", "past")
        )
    )
    async with LogReader.open(url) as reader:
        acknowledged = first.done + second.done
        assert reader.tail - 1 == acknowledged, "the log holds what was acknowledged"

    def record(name: str, unit: str, value: float, at_least: float | None = None) -> None:
        session.record(
            Figure(
                question="contention",
                name=name,
                place=place.name,
                unit=unit,
                value=value,
                bound="at least",
                target=at_least,
            )
        )

    for name, progress in (("writer 1", first), ("writer 2", second)):
        record(f"{name}, records", "records/s", progress.done / seconds, 1 / seconds)
        record(f"{name}, taken over and reopened", "times", progress.refusals)
        record(f"{name}, longest wait", "s", progress.longest_wait_s)
    record("past-changer, changes", "changes/s", past.done / seconds, 1 / seconds)
    record("past-changer, refused and repeated", "times", past.refusals)
    record("past-changer, longest wait", "s", past.longest_wait_s)


async def append_for(url: str, seconds: float) -> Progress:
    """Saturate the log from many callers for a given time."""
    body = make_bodies(1, RECORD_BYTES)[0]
    options = WriterOptions(on_fenced="reopen")
    async with LogWriter.open(url, options=options) as log:
        started_s = time.perf_counter()
        waits = Waits(started_s)
        done = 0

        async def caller() -> None:
            nonlocal done
            while time.perf_counter() < started_s + seconds:
                await log.append(body)
                done += 1
                waits.succeeded()

        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(caller())
        reopenings = log.stats["reopenings"]
        assert isinstance(reopenings, int)
        return Progress(done, reopenings, waits.longest_s)


async def change_the_past_for(url: str, seconds: float) -> Progress:
    """Repeatedly swap the manifest for one with the same records, as a collector does."""
    store = open_store(url)
    started_s = time.perf_counter()
    waits = Waits(started_s)
    done = refusals = 0
    while time.perf_counter() < started_s + seconds:
        current = await store.get(MANIFEST_PATH)
        write_id = DEFAULT_RUNTIME.new_id()
        changed = msgspec.structs.replace(decode_manifest(current.data), write_id=write_id)

        def is_ours(blob: Blob, write_id: str = write_id) -> bool:
            return decode_manifest(blob.data).write_id == write_id

        outcome = await swap(
            store,
            MANIFEST_PATH,
            changed.to_json(),
            current.etag,
            is_ours,
            Patience(DEFAULT_RUNTIME, TIMEOUT_S),
        )
        if isinstance(outcome, Landed):
            done += 1
            waits.succeeded()
        else:
            refusals += 1
    return Progress(done, refusals, waits.longest_s)


async def _take_part(role: str, url: str, begin: float, seconds: float) -> Progress:
    await asyncio.sleep(begin - time.time())
    work = append_for if role == "writer" else change_the_past_for
    return await work(url, seconds)


if __name__ == "__main__":
    role, url, begin, seconds = sys.argv[1:]
    give_answer(asyncio.run(_take_part(role, url, float(begin), float(seconds))))
