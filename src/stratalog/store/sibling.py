"""Another place of the same bucket or disk, reached in the same way as this one.

A log that was forked reads objects of the log that it came from. Credentials and endpoints are not
stored with it, so the other place is opened through the client that is open already.
"""

from __future__ import annotations

from stratalog.store.counted import CountedStore
from stratalog.store.locate import open_store
from stratalog.store.patient import PatientStore
from stratalog.store.prefixed import PrefixedStore
from stratalog.store.protocol import Store


def sibling(store: Store, url: str) -> Store:
    """The store at ``url``, through the client of ``store`` if that leads there."""
    if isinstance(store, PatientStore | CountedStore):
        return store.around(sibling(store.inner, url))
    if isinstance(store, PrefixedStore):
        top = store.inner.url.rstrip("/") + "/"
        if url.startswith(top):
            return PrefixedStore(store.inner, url.removeprefix(top))
    return open_store(url)
