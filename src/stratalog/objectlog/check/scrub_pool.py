"""The processes of a scrub: started when it begins, gone when it ends, however it ends."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from typing import cast

from stratalog.errors import Unavailable
from stratalog.objectlog.check.scrub_read import Examined
from stratalog.objectlog.check.scrub_worker import LENGTH, Job, frame
from stratalog.objectlog.options import MIB
from stratalog.objectlog.pickling import located
from stratalog.objectlog.stored import Fragment
from stratalog.store import DirectoryStore, Store, StoreLike

BATCHES_AHEAD = 2

# Many threads read fragments, one hashes and frees them. glibc would give their pages back and
# fault them in again, some 150 for each fragment; in one arena that keeps them it is about ten.
_MALLOC = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 * MIB),
    "MALLOC_TRIM_THRESHOLD_": str(128 * MIB),
}
_PROGRAM = "from stratalog.objectlog.check.scrub_worker import main; main()"


def shared_url(target: StoreLike) -> str | None:
    """The URL by which another process finds the same store, or None.

    A store object may have been given credentials that are in no environment.
    """
    if isinstance(target, Store):
        return target.url if type(target) is DirectoryStore else None
    url = str(located(target))
    return None if url.lower().startswith("memory:") else url


def can_start() -> bool:
    """Whether this interpreter can start another one like it."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


class WorkerPool:
    """Examines batches in processes of its own. Made by ``start``."""

    def __init__(self, processes: int, fragments_max: int) -> None:
        self._workers: list[_Worker] = []
        self.batches = BATCHES_AHEAD * processes
        self.batch_fragments = max(1, fragments_max // self.batches)

    @classmethod
    async def start(cls, job: Job, processes: int, fragments_max: int) -> WorkerPool:
        pool = cls(processes, fragments_max)
        try:
            for _ in range(processes):
                worker = _Worker(await _start_process())
                pool._workers.append(worker)
                await worker.send(job)
        except BaseException:
            await pool.close()
            raise
        return pool

    async def examine(self, batch: Sequence[Fragment]) -> Examined:
        return await min(self._workers, key=lambda worker: worker.under_way).examine(batch)

    async def close(self) -> None:
        """End the processes. They hold nothing that needs to be saved."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            await worker.gone()


async def _start_process() -> Process:
    # Not in the terminal's process group: Ctrl-C is for the scrub, which then ends its processes.
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-c",
            _PROGRAM,
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, **_MALLOC, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(
            f"a process for the scrub cannot be started: {error.strerror or error}",
            hint="Let it run in this process with processes=0.",
        ) from error


class _Worker:
    """One process and the batches that it has not answered yet."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._answers: dict[int, asyncio.Future[Examined]] = {}
        self._sent = 0
        self._receiving = asyncio.ensure_future(self._receive())

    @property
    def under_way(self) -> int:
        return len(self._answers)

    async def send(self, message: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(frame(message))
        await self._process.stdin.drain()

    async def examine(self, batch: Sequence[Fragment]) -> Examined:
        self._sent += 1
        number = self._sent
        answer: asyncio.Future[Examined] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            if self._receiving.done():
                raise _ended()
            await self.send((number, batch))
            return await answer
        except (BrokenPipeError, ConnectionResetError):
            raise _ended() from None
        finally:
            self._answers.pop(number, None)

    def kill(self) -> None:
        self._receiving.cancel()
        if self._process.returncode is None:
            self._process.kill()

    async def gone(self) -> None:
        await asyncio.gather(self._receiving, return_exceptions=True)
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def _receive(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        try:
            while True:
                (length,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
                number, examined = pickle.loads(await stream.readexactly(length))
                answer = self._answers.get(number)
                if answer is not None and not answer.done():
                    answer.set_result(cast(Examined, examined))
        except asyncio.IncompleteReadError:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(_ended())


def _ended() -> Unavailable:
    return Unavailable(
        "a process of the scrub has ended unexpectedly",
        hint="Look for what ended it (memory?), then resume, perhaps with processes=0.",
    )
