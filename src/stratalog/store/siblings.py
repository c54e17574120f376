"""Another place of the same bucket or disk, reached in the same way as this one.

A log that was forked reads objects of the log that it came from. Credentials and endpoints are not
stored with it, so the other place is opened through the client that is open already. A URL that
carries options asks for a client with these, so it is opened as it is.
"""

from stratalog.store.counted import CountedStore
from stratalog.store.locate import CLOUD_SCHEMES, open_store
from stratalog.store.patient import PatientStore
from stratalog.store.prefixed import PrefixedStore
from stratalog.store.protocol import Store


def sibling(store: Store, url: str) -> Store:
    """The store at ``url``, through the client of ``store`` if that leads there."""
    if isinstance(store, PatientStore | CountedStore):
        return store.around(sibling(store.inner, url))
    if isinstance(store, PrefixedStore):
        top = store.inner.url.rstrip("/") + "/"
        place, options = _without_options(url)
        if place.startswith(top) and not options:
            prefix = place.removeprefix(top).strip("/")
            return PrefixedStore(store.inner, prefix) if prefix else store.inner
    return open_store(url)


def _without_options(url: str) -> tuple[str, str]:
    """A URL without its options, and those. Elsewhere than in a bucket a name may have a ``?``."""
    if url.partition("://")[0].lower() not in CLOUD_SCHEMES:
        return url, ""
    place, _, options = url.partition("?")
    return place, options
