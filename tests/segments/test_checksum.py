"""The disk's CRC-32 is zlib's, whoever computes it."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segments.disks import run
from stratalog.segments import Disk
from stratalog.segments.format import checksum

WITHOUT_ISAL = """
import asyncio, sys, zlib
sys.modules["isal"] = None
from stratalog.segments import Disk
from stratalog.segments.format import checksum

async def main():
    async with await Disk.open(sys.argv[1]) as disk:
        part = await disk.partition("p")
        print([entry.payload async for some in part.read(range(1, 9)) for entry in some])
        await part.append([b"by zlib"])

assert checksum.crc32 is zlib.crc32
asyncio.run(main())
"""


@given(st.binary(max_size=3000), st.integers(0, 2**32 - 1))
def test_the_same_number(data: bytes, start: int) -> None:
    assert checksum.crc32(data) == zlib.crc32(data)
    assert checksum.crc32(memoryview(data), start) == zlib.crc32(data, start)


def test_a_disk_can_be_opened_with_isal_and_without(tmp_path: Path) -> None:
    pytest.importorskip("isal", reason="there is only one way then")

    async def write() -> None:
        async with await Disk.open(tmp_path) as disk:
            await (await disk.partition("p")).append([b"by isal"] * 2)
            await disk.flush()

    async def read() -> list[bytes]:
        async with await Disk.open(tmp_path) as disk:
            part = await disk.partition("p")
            return [entry.payload async for some in part.read(range(1, 9)) for entry in some]

    run(write())
    command = [sys.executable, "-c", WITHOUT_ISAL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[b'by isal', b'by isal']\n"
    assert run(read()) == [b"by isal", b"by isal", b"by zlib"]
