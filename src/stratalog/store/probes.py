"""A few cheap requests that a store must answer rightly before a log is created on it.

Some emulators and proxies accept conditional puts and ignore the condition. A log on such a store
would lose records in silence, so it is refused. These probes are one after the other and find a
store that ignores conditions; ``doctor`` races writers and finds one that honours them only most
of the time.

No store is accused of what the contract allows: an answer that was lost leads to another attempt
under another name, and a refusal that is the echo of the probe's own write is read back first. A
refusal although nothing has changed (S3's 409) is allowed now and then: a store is accused of it
if it does so every time.
"""

import contextlib
from collections.abc import AsyncIterator
from weakref import WeakKeyDictionary, WeakValueDictionary

from stratalog.errors import (
    Conflict,
    Denied,
    Exists,
    Invalid,
    NotFound,
    StratalogError,
    Unavailable,
    Unknown,
)
from stratalog.runtime import Runtime
from stratalog.store.cas import Patience
from stratalog.store.counted import CountedStore
from stratalog.store.patient import PatientStore
from stratalog.store.prefixed import PrefixedStore
from stratalog.store.protocol import Blob, Store

PROBE_TIMEOUT_S = 30.0
PROBE_PREFIX = "probe/"
FALSE_REFUSALS_MAX = 5

# Kept for each runtime, which a process has one of and a simulation its own. A store is known by
# its object: two servers may have buckets, and so URLs, of the same name.
_passed: WeakKeyDictionary[Runtime, WeakValueDictionary[int, Store]] = WeakKeyDictionary()


async def probe(store: Store, runtime: Runtime) -> None:
    """Raise ``Invalid`` if the store breaks a promise. Asked once for each store and process."""
    passed = _passed.setdefault(runtime, WeakValueDictionary())
    whole = _whole(store)
    if passed.get(id(whole)) is whole:
        return
    patience = Patience(runtime, PROBE_TIMEOUT_S)
    false_refusals = 0
    while True:
        try:
            await _probe(store, f"{PROBE_PREFIX}{runtime.new_id()}", runtime.new_id())
        except (Unknown, Unavailable, _FalseRefusal) as error:
            if isinstance(error, _FalseRefusal):
                false_refusals += 1
                if false_refusals == FALSE_REFUSALS_MAX:
                    raise _broken(store, error.promise) from None
            if not await patience.pause():
                raise Unavailable(f"{store.url} did not answer a probe: {error}") from error
            continue
        with contextlib.suppress(TypeError):  # an object that allows no weak reference
            passed[id(whole)] = whole
        return


async def _probe(store: Store, path: str, content: str) -> None:
    first, second, third = (f"{content}-{version}".encode() for version in (1, 2, 3))
    try:
        try:
            created = await store.put_if_absent(path, first)
        except Exists:
            created = await _landed(store, path, first, None, "create a new object")
        async with _refusal(store, Exists, "refuse to create an object twice"):
            await store.put_if_absent(path, second)
        if (await _read(store, path, first, "give back what was written")).etag != created:
            raise _broken(store, "answer a put with the etag that a read has")
        try:
            replaced = await store.put_if_match(path, second, created)
        except Conflict:
            promise = "replace where the etag matches"
            replaced = await _landed(store, path, second, first, promise)
        async with _refusal(store, Conflict, "refuse to replace where the etag has changed"):
            await store.put_if_match(path, third, created)
        if (await _read(store, path, second, "give back what was written last")).etag != replaced:
            raise _broken(store, "answer a put with the etag that a read has")
    finally:
        with contextlib.suppress(Denied, Unavailable, Unknown):
            await store.delete_many([path])


@contextlib.asynccontextmanager
async def _refusal(store: Store, kind: type[StratalogError], promise: str) -> AsyncIterator[None]:
    """What is done inside must be refused."""
    try:
        yield
    except kind:
        return
    raise _broken(store, promise)


class _FalseRefusal(Exception):
    """A put was refused, did not land, and nothing else has changed the object."""

    def __init__(self, promise: str) -> None:
        super().__init__(f"it did not {promise}")
        self.promise = promise


async def _landed(store: Store, path: str, data: bytes, before: bytes | None, promise: str) -> str:
    """The etag of a put that was refused and is there all the same."""
    try:
        found = await store.get(path)
    except NotFound:
        if before is not None:
            raise _broken(store, promise) from None
        raise _FalseRefusal(promise) from None
    if found.data == before:
        raise _FalseRefusal(promise)
    if found.data != data:
        raise _broken(store, promise)
    return found.etag


async def _read(store: Store, path: str, data: bytes, promise: str) -> Blob:
    """The object, which must have these bytes."""
    try:
        found = await store.get(path)
    except NotFound:
        raise _broken(store, promise) from None
    if found.data != data:
        raise _broken(store, promise)
    return found


def _broken(store: Store, promise: str) -> Invalid:
    return Invalid(
        f"{store.url} does not {promise}: a log there would lose records",
        hint=f"Run `stratalog doctor {store.url}` for a full report, and use another store.",
    )


def _whole(store: Store) -> Store:
    """A promise is the bucket's, not that of one prefix in it."""
    while isinstance(store, PrefixedStore | CountedStore | PatientStore):
        store = store.inner
    return store
