"""Callers that give up waiting while a thread is at work for them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from segments.replicas import entries_of
from stratalog.segments import Disk
from stratalog.segments.io.files import Buffer, File, LocalFiles


class GatedFile:
    """A file whose reads wait at a gate."""

    def __init__(self, file: File, files: GatedFiles) -> None:
        self._file = file
        self._files = files

    def read_at(self, position: int, size: int) -> bytes:
        if self._files.is_gated:
            self._files.reached.set()
            self._files.gate.wait(60)
        return self._file.read_at(position, size)

    def size(self) -> int:
        return self._file.size()

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._file.read_into(position, buffer)

    def write_at(self, position: int, *parts: Buffer) -> int:
        return self._file.write_at(position, *parts)

    def write_durably(self, position: int, *parts: Buffer) -> int:
        return self._file.write_durably(position, *parts)

    def allocate(self, size: int) -> None:
        self._file.allocate(size)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._files.closed += 1
        self._file.close()


class GatedFiles(LocalFiles):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.is_gated = False
        self.reached = threading.Event()
        self.gate = threading.Event()
        self.opened = self.closed = 0

    def open(self, path: str) -> File:
        self.opened += 1
        return GatedFile(super().open(path), self)


@pytest.mark.parametrize("what", ["entries", "state"])
def test_a_read_that_is_given_up_ends_when_its_thread_does(tmp_path: Path, what: str) -> None:
    async def main() -> None:
        files = GatedFiles(tmp_path)
        async with await Disk.open(files) as disk:
            partition = await disk.partition("orders")
            await partition.write(0, entries_of(range(1, 10), 1))
            await partition.checkpoint(1, b"state")
            await disk.flush()

            async def read() -> None:
                if what == "state":
                    await partition.state()
                async for _ in partition.read(range(1, 10)):
                    pass

            files.is_gated = True
            reading = asyncio.create_task(read())
            await asyncio.to_thread(files.reached.wait, 60)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            files.is_gated = False
            files.gate.set()
            assert await partition.state() == b"state"
            assert (await partition.get(5)).payload == b"5 in epoch 1"
        assert files.closed >= files.opened

    asyncio.run(main())
