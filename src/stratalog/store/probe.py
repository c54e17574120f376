"""A few cheap questions to a store before a log is entrusted to it.

Some emulators and proxies ignore the conditions of a conditional put. A log on such a store would
lose records, so it is refused. Asked once per store and process; ``stratalog doctor`` asks more.
"""

from __future__ import annotations

from stratalog.errors import Conflict, Denied, Exists, Invalid
from stratalog.runtime import Runtime
from stratalog.store.protocol import Store

_passed: set[str] = set()


async def probe(store: Store, runtime: Runtime) -> None:
    """Refuse a store that breaks a promise of the protocol. Costs six small requests."""
    if store.url in _passed:
        return
    path = f"probe/{runtime.new_id()}"
    first, second = runtime.new_id().encode(), runtime.new_id().encode()
    etag = await store.put_if_absent(path, first)
    try:
        await _must_refuse_second_create(store, path, second)
        await _must_refuse_stale_match(store, path, second)
        blob = await store.get(path)
        if blob.data != first or blob.etag != etag:
            raise _broken(store, "reading back what was just written")
        await store.put_if_match(path, second, etag)
    finally:
        try:
            await store.delete_many([path])
        except Denied:
            pass
    _passed.add(store.url)


async def _must_refuse_second_create(store: Store, path: str, data: bytes) -> None:
    try:
        await store.put_if_absent(path, data)
    except Exists:
        return
    raise _broken(store, "refusing to create an object that exists")


async def _must_refuse_stale_match(store: Store, path: str, data: bytes) -> None:
    try:
        await store.put_if_match(path, data, '"00000000000000000000000000000000"')
    except Conflict:
        return
    raise _broken(store, "refusing to replace a version that is not the current one")


def _broken(store: Store, promise: str) -> Invalid:
    return Invalid(
        f"{store.url} fails at {promise}; a log there would lose records",
        hint=f"Run `stratalog doctor {store.url}` for the details, and use another store.",
    )
