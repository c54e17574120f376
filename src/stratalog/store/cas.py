"""Settling a conditional put: changing one object, and knowing afterwards whether it changed.

This is the one place that deals with two facts about conditional puts. An answer may be lost, and
the put may land later. A refusal may be the echo of an earlier attempt of one's own. So neither is
believed: the object is read back, and what is stored decides. ``document`` builds typed objects on
top of this.

``swap`` moves an object from the version ``etag`` to ``data``:

    the put is answered          Landed
    read back, etag unchanged    the first attempt may still land, so the same bytes are put again
                                 from the same etag: whichever lands first bars the other
    read back, it is ours        Landed, perhaps with newer versions on top
    read back, it is not ours    Overtaken: the etag moved on, so ours can no longer land
    no clarity in time           raises Unknown

This rests on one rule for the content: no two versions of an object are ever byte-equal (every
version carries a fresh write id), because etags may be hashes of the content.

``put_once`` creates an immutable object under a name that nobody else uses.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from stratalog.errors import (
    Conflict,
    Denied,
    Exists,
    Invalid,
    NotFound,
    NotHappened,
    StratalogError,
    Unavailable,
    Unknown,
)
from stratalog.runtime import Runtime
from stratalog.store.in_place import create_made
from stratalog.store.protocol import Blob, Store

T = TypeVar("T")


class Patience:
    """How long to go on trying: a deadline with growing, jittered pauses."""

    __slots__ = ("_deadline", "_loop", "_pause_s", "_timeout_s", "runtime")

    PAUSE_S_FIRST = 0.02
    PAUSE_S_MAX = 2.0

    def __init__(self, runtime: Runtime, timeout_s: float) -> None:
        self.runtime = runtime
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._pause_s = self.PAUSE_S_FIRST
        self.begin()

    def begin(self) -> None:
        """Start the clock again. Any thread may call it."""
        self._deadline = self._loop.time() + self._timeout_s

    async def pause(self) -> bool:
        """Wait a little longer than last time. False when the time is up."""
        remaining = self._deadline - self._loop.time()
        if remaining <= 0:
            return False
        jittered = self._pause_s * (0.5 + self.runtime.random())
        self._pause_s = min(2 * self._pause_s, self.PAUSE_S_MAX)
        await asyncio.sleep(min(jittered, remaining))
        return True


@dataclass(frozen=True, slots=True)
class Landed:
    """The swap happened. ``newer`` is set if others have changed the object since."""

    etag: str
    newer: Blob | None = None


@dataclass(frozen=True, slots=True)
class Superseded(Generic[T]):
    """The version that was to be replaced is gone. ``current`` is there now, if anything is.

    ``answered`` means that the store refused the only attempt. Otherwise an answer was lost, and
    ours may have been there for a while.
    """

    current: T | None
    answered: bool


class Overtaken(Superseded[Blob]):
    """The swap did not happen."""


async def swap(
    store: Store,
    path: str,
    data: bytes,
    etag: str,
    is_ours: Callable[[Blob], bool],
    patience: Patience,
) -> Landed | Overtaken:
    """Replace version ``etag`` by ``data``; ``is_ours`` knows it again, also below newer ones."""
    doubts = 0
    while True:
        answer = await _attempt(lambda: store.put_if_match(path, data, etag), patience, doubts > 0)
        if isinstance(answer, str):
            return Landed(answer)
        doubts += isinstance(answer, Conflict | Unknown)
        current = await _read_back(store, path, patience)
        if current is None or current.etag != etag:
            if current is not None and is_ours(current):
                ours = current.data == data
                return Landed(current.etag, None if ours else current)
            return Overtaken(current, answered=isinstance(answer, Conflict) and doubts == 1)
        if not await patience.pause():
            raise Unknown(f"{path}: a conditional put may still land: {answer}", path=path)


async def _attempt(
    put: Callable[[], Awaitable[str]], patience: Patience, in_doubt: bool
) -> str | StratalogError:
    """The etag of a put, or the failure after which what is stored must tell.

    An attempt that did not land is made again, or raises. If an earlier one may have landed
    (``in_doubt``), even that is no answer.
    """
    while True:
        try:
            return await put()
        except (Conflict, Exists, Unknown) as error:
            return error
        except (Unavailable, Denied, Invalid) as error:
            if in_doubt:
                return error
            if not isinstance(error, Unavailable) or not await patience.pause():
                raise


async def _read_back(store: Store, path: str, patience: Patience) -> Blob | None:
    while True:
        try:
            return await store.get(path)
        except NotFound:
            return None
        except StratalogError as error:
            # Denied, say, by a token that has just expired: the put may have landed all the same.
            if not isinstance(error, Unavailable) or not await patience.pause():
                raise Unknown(
                    f"{path}: cannot be read back after a conditional put: {error}", path=path
                ) from error


async def put_once(
    store: Store, new_path: Callable[[], str], data: bytes, patience: Patience
) -> str:
    """Create an immutable object; gives the path that holds exactly ``data``.

    ``new_path`` gives a fresh name on every call. The same bytes are sent again under the same
    name; should other bytes sit there, the name is given up for good.
    """
    return await _put_until_there(store, new_path(), new_path, data, patience)


async def put_made_once(
    store: Store,
    new_path: Callable[[], str],
    make: Callable[[], bytes],
    patience: Patience,
    runtime: Runtime,
) -> str:
    """``put_once`` of what ``make`` gives. It is called once, away from the event loop.

    Patience is for the store and begins when there is something to put. A call that is cancelled
    before that puts nothing.
    """
    made: list[bytes] = []
    cancelled = False

    def making() -> bytes:
        if not made and not cancelled:
            made.append(make())
        if cancelled:
            raise NotHappened(f"{path} is not wanted any more", path=path)
        patience.begin()
        return made[0]

    path = new_path()
    while True:
        try:
            await create_made(store, path, making, runtime)
            return path
        except asyncio.CancelledError:
            cancelled = True
            raise
        except (Exists, Unknown, Unavailable) as error:
            if made:
                return await _put_until_there(store, path, new_path, made[0], patience, error)
            if not isinstance(error, Unavailable) or not await patience.pause():
                raise


async def _put_until_there(
    store: Store,
    path: str,
    new_path: Callable[[], str],
    data: bytes,
    patience: Patience,
    failure: StratalogError | None = None,
) -> str:
    """Put it. After a put that failed: is it there? If not, again."""
    while True:
        if failure is not None:
            try:
                if (await store.get(path)).data == data:
                    return path
                path = new_path()
            except NotFound:
                pass
            except Unavailable as error:
                failure = error
            if not await patience.pause():
                raise Unavailable(f"{path}: could not be stored in time: {failure}", path=path)
        try:
            await store.put_if_absent(path, data)
            return path
        except (Exists, Unknown, Unavailable) as error:
            failure = error


async def create(store: Store, path: str, data: bytes, patience: Patience) -> str:
    """Create a mutable object; gives its etag. ``Exists`` means that somebody else's was there."""
    doubt = False
    while True:
        answer = await _attempt(lambda: store.put_if_absent(path, data), patience, doubt)
        if isinstance(answer, str):
            return answer
        doubt = doubt or isinstance(answer, Unknown)
        current = await _read_back(store, path, patience)
        if current is not None:
            if current.data == data:
                return current.etag
            if doubt:
                raise Unknown(f"{path} exists, and may have been created by this call", path=path)
            raise Exists(f"{path} exists in {store.url}", path=path)
        if not await patience.pause():
            raise Unknown(f"{path}: may have been created: {answer}", path=path)
