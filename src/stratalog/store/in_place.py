"""Get an object and use it on the thread that read it.

A local directory is read by a thread. If another one then decodes what was read, the bytes travel
from core to core and their memory cannot be used again at once; two trips through the event loop
come on top. Together that takes longer than reading and decoding. A bucket is read by nobody's
thread, so there the work is the only trip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from stratalog.runtime import Runtime
from stratalog.store.protocol import Store

T = TypeVar("T")


class ReadsInPlace(Protocol):
    """A store that can do both at once."""

    async def get_then(self, path: str, work: Callable[[bytes], T], runtime: Runtime) -> T:
        """What ``work`` makes of an object's bytes, away from the event loop."""
        ...


async def get_then(store: Store, path: str, work: Callable[[bytes], T], runtime: Runtime) -> T:
    """What ``work`` makes of an object's bytes, with as few trips as the store allows."""
    if hasattr(type(store), "get_then"):  # its own, not that of a store that it wraps
        return await cast(ReadsInPlace, store).get_then(path, work, runtime)
    data = (await store.get(path)).data
    return await runtime.compute(lambda: work(data))
