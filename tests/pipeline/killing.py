"""Killing the driver of a stream, over and over, and looking at what came of it.

Every record of the source is in the target once, whenever the driver was killed and however often.
Beside it a writer appends to the source, and another one to the target.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import stratalog as sl
from stratalog.objectlog.options import WriterOptions

DRIVER = Path(__file__).with_name("stream_driver.py")
START_S_MAX = 180.0
ALIVE_S_MAX = 1.5
PAUSE_S = 0.05


@dataclass(frozen=True)
class Survived:
    """What the records say after all kills."""

    copied: int
    beside: int
    """Records that another writer has appended to the target meanwhile."""

    batches: int
    kills: int


async def kill_again_and_again(
    source: str, target: str, checkpoint: Path, *, kills: int, random: Random
) -> Survived:
    """Run the driver, kill it, and so on; then let it finish, and compare."""
    await sl.create_log(source)
    await sl.create_log(target)
    async with appending(source, b"r") as copied, appending(target, b"w") as beside:
        for _ in range(kills):
            with driver(source, target, checkpoint) as process:
                await asyncio.to_thread(wait_until_it_streams, process)
                if random.random() < 0.7:
                    await a_batch_more(target)
                await asyncio.sleep(random.uniform(0.0, ALIVE_S_MAX))
                assert process.poll() is None, "the driver ended by itself"
    with driver(source, target, checkpoint, "--once") as process:
        await asyncio.to_thread(wait_until_it_streams, process)
        assert await asyncio.to_thread(process.wait, START_S_MAX) == 0
    async with sl.LogReader.open(target) as reader:
        found = Counter([record.body async for record in reader.records()])
    twice = [body for body, count in found.items() if count > 1]
    assert not twice, f"{len(twice)} records are there twice, {twice[:3]} among them"
    assert {body for body in found if body[:1] == b"r"} == set(copied), "all were copied"
    assert {body for body in found if body[:1] == b"w"} == set(beside), "nobody else was hurt"
    assert (await sl.scrub(target)).clean
    return Survived(len(copied), len(beside), await batches_of(target), kills)


async def a_batch_more(target: str) -> None:
    """Wait until the stream has linked something."""
    before = await batches_of(target)
    async with asyncio.timeout(START_S_MAX):
        while await batches_of(target) == before:
            await asyncio.sleep(PAUSE_S)


async def batches_of(target: str) -> int:
    """How many batches are linked."""
    async with sl.LogReader.open(target) as reader:
        return max((reader.manifest.sinks or {"": -1}).values()) + 1


@contextlib.asynccontextmanager
async def appending(url: str, prefix: bytes) -> AsyncIterator[list[bytes]]:
    """A writer that goes on while others do; gives what it has appended so far."""
    appended: list[bytes] = []
    stopped = asyncio.Event()

    async def append() -> None:
        async with sl.LogWriter.open(url, options=WriterOptions(on_fenced="reopen")) as log:
            while not stopped.is_set():
                body = b"%s%d" % (prefix, len(appended))
                await log.append(body)
                appended.append(body)
                await asyncio.sleep(PAUSE_S)

    task = asyncio.ensure_future(append())
    try:
        yield appended
    finally:
        stopped.set()
        await task


@contextlib.contextmanager
def driver(
    source: str, target: str, checkpoint: Path, *more: str
) -> Iterator[subprocess.Popen[str]]:
    """The driver with its JVM and its workers, which are killed together at the end."""
    process = subprocess.Popen(
        [sys.executable, str(DRIVER), source, target, str(checkpoint), *more],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def wait_until_it_streams(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "streaming":
            return
    raise AssertionError(f"the driver ended with {process.wait()}")
