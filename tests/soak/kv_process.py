"""A process with a key–value store, which goes on with the operations until it is killed.

Prints ``opened N`` with the last operation that it found, then ``done N`` after each operation that
was acknowledged. If it is told where to end, it takes a checkpoint there, compacts, and leaves.
"""

from __future__ import annotations

import asyncio
import sys

from examples.kv.kv import Store
from soak.kv_operations import CHECKPOINT_EVERY, OPTIONS, operation

AT_ONCE = 16
COMPACT_EVERY = 400


async def main(path: str, seed: int, end: int | None) -> None:
    async with await Store.open(path, checkpoint_every=CHECKPOINT_EVERY, options=OPTIONS) as store:
        tell("opened", store.applied)
        while end is None or store.applied < end:
            first = store.applied + 1
            last = first + AT_ONCE if end is None else min(first + AT_ONCE, end + 1)
            await asyncio.gather(*(carry_out(store, seed, number) for number in range(first, last)))
            if last // COMPACT_EVERY > first // COMPACT_EVERY:
                await store.compact()
        if end is not None:
            await store.checkpoint()
            await store.compact()


async def carry_out(store: Store, seed: int, number: int) -> None:
    key, value = operation(seed, number)
    await (store.delete(key) if value is None else store.set(key, value))
    tell("done", number)


def tell(what: str, number: int) -> None:
    sys.stdout.write(f"{what} {number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else None))
