"""Herds for the measurements."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stratalog import Herd

AT_ONCE = 16


async def make_herd(url: str, logs: int, batches: Sequence[Sequence[bytes]]) -> list[str]:
    """Make a number of logs, each with these batches; returns their names."""
    names = [f"log-{number:05}" for number in range(logs)]
    left = iter(names)
    async with Herd.open(url, server="bench") as herd:

        async def fill() -> None:
            for name in left:
                log = await herd.create(name)
                for batch in batches:
                    await log.append_many(batch)

        await asyncio.gather(*(fill() for _ in range(AT_ONCE)))
    return names


def orders(count: int, keys: int, first: int = 0, width: int = 100) -> list[bytes]:
    """Small JSON records of about ``width`` bytes, with a given number of keys."""
    return [
        b'{"key": "k%05d", "number": %d, "note": "' % (number % keys, number) + b"." * width
        for number in range(first, first + count)
    ]
