"""Writers of a soak that are real processes, so that killing one is SIGKILL."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import stratalog as sl
from stratalog.errors import NotHappened, Unavailable, Unknown
from stratalog.soak import SoakWriter

PROGRAM = Path(__file__).with_name("writer_process.py")
LINE_BYTES_MAX = 64 * 1024
PATIENCE_S = 90.0


class ProcessWriter:
    """One process, and the appends that it has not answered yet."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._answers: dict[int, asyncio.Future[dict[str, object]]] = {}
        self._asked = -1
        self._listening = asyncio.ensure_future(self._listen())

    async def opened(self) -> None:
        """Wait until it has opened the log."""
        answer = await self._answer(self._ask())
        if "error" in answer:
            raise Unavailable(f"a writer could not open the log: {answer}")

    async def append(self, bodies: Sequence[bytes]) -> sl.LogPosition:
        number = self._ask()
        command = json.dumps({"id": number, "sizes": [len(body) for body in bodies]}).encode()
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(b"".join([command, b"\n", *bodies]))
            await self.process.stdin.drain()
        except ConnectionError:
            raise Unknown("the process that was to append is gone") from None
        answer = await self._answer(number)
        if "error" in answer:
            kind = Unknown if answer["error"] == "unknown" else NotHappened
            raise kind(f"{answer['error']}: {answer['message']}")
        offset, timestamp_us = answer["offset"], answer["timestamp_us"]
        assert isinstance(offset, int)
        assert isinstance(timestamp_us, int)
        return sl.LogPosition(offset, timestamp_us)

    async def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), PATIENCE_S)
        finally:
            await self.kill()

    async def kill(self) -> None:
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        await self._listening
        assert self.process.stdin is not None
        self.process.stdin.close()

    def _ask(self) -> int:
        self._asked += 1
        answer = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_hear)
        self._answers[self._asked] = answer
        return self._asked

    async def _answer(self, number: int) -> dict[str, object]:
        try:
            return await self._answers[number]
        finally:
            del self._answers[number]

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            answer = json.loads(line)
            future = self._answers.get(answer["id"])
            if future is not None and not future.done():
                future.set_result(answer)
        for future in self._answers.values():
            if not future.done():
                future.set_exception(Unknown("the process that appended was killed"))


def _hear(answer: asyncio.Future[dict[str, object]]) -> None:
    """Whoever asked may be gone. Then nobody is left to be told."""
    if not answer.cancelled():
        answer.exception()


class ProcessWriters:
    """Starts them for a soak."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._running: list[ProcessWriter] = []
        self.pids: list[int] = []

    async def open(self, name: str, options: sl.WriterOptions) -> SoakWriter:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROGRAM),
            self._url,
            name,
            json.dumps(asdict(options)),
            stdin=PIPE,
            stdout=PIPE,
            limit=LINE_BYTES_MAX,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        writer = ProcessWriter(process)
        self.pids.append(process.pid)
        self._running = [each for each in self._running if each.process.returncode is None]
        self._running.append(writer)
        try:
            await writer.opened()
        except BaseException:
            await writer.kill()
            raise
        return writer

    async def end(self) -> None:
        """Kill those that are left."""
        for writer in self._running:
            await writer.kill()


@asynccontextmanager
async def process_writers(url: str) -> AsyncIterator[ProcessWriters]:
    """Whatever happens, none of them is left over."""
    writers = ProcessWriters(url)
    try:
        yield writers
    finally:
        await writers.end()
