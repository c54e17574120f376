"""Use an object on the thread that reads it, and make it on the thread that writes it.

A store's calls block a thread. If another thread decodes what was read, or encodes what is written,
the bytes travel from core to core, their memory cannot be reused at once, and both trips go through
the event loop, which may be busy with a thousand callers. Together that takes longer than the work.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from stratalog.runtime import Runtime
from stratalog.store.protocol import Store

T = TypeVar("T")


class InPlace(Protocol):
    """What a store may offer beside the contract; each of the two on its own."""

    async def get_then(self, path: str, work: Callable[[bytes], T], runtime: Runtime) -> T:
        """What ``work`` makes of an object's bytes, away from the event loop."""
        ...

    async def create_made(self, path: str, make: Callable[[], bytes], runtime: Runtime) -> None:
        """``put_if_absent`` of what ``make`` gives, and no etag."""
        ...


def _has_its_own(store: Store, in_place: str, plain: str) -> bool:
    """Whether to call a store's ``in_place`` method. A subclass that overrides only the ``plain``
    one is called through that."""
    for each in type(store).__mro__:
        if in_place in vars(each) or plain in vars(each):
            return in_place in vars(each)
    return False


async def get_then(store: Store, path: str, work: Callable[[bytes], T], runtime: Runtime) -> T:
    """What ``work`` makes of an object's bytes, with as few trips as the store allows."""
    if _has_its_own(store, "get_then", "get"):
        return await cast(InPlace, store).get_then(path, work, runtime)
    data = (await store.get(path)).data
    return await runtime.compute(lambda: work(data))


async def create_made(store: Store, path: str, make: Callable[[], bytes], runtime: Runtime) -> None:
    """Create an object of what ``make`` gives, with as few trips as the store allows."""
    if _has_its_own(store, "create_made", "put_if_absent"):
        await cast(InPlace, store).create_made(path, make, runtime)
        return
    await store.put_if_absent(path, await runtime.compute(make))
