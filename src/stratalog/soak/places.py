"""A place for a fork: beside the log, in the same bucket or on the same disk."""

import os
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from stratalog.store import DirectoryStore, MemoryStore, PrefixedStore, Store, open_store


def place_beside(store: Store, suffix: str) -> Store | None:
    """The place named like the log, with a suffix. None if the store has no such place."""
    if isinstance(store, PrefixedStore):
        top = store.inner.url.rstrip("/") + "/"
        return PrefixedStore(store.inner, f"{store.url.removeprefix(top)}-{suffix}")
    if isinstance(store, MemoryStore) and open_store(store.url) is not store:
        return None  # a fork could not find it by its URL
    if isinstance(store, DirectoryStore | MemoryStore):
        return open_store(f"{store.url}-{suffix}")
    return None


def remove_empty_folders(store: Store) -> None:
    """Remove the empty folders of a destroyed log in a directory. Other folders stay."""
    if isinstance(store, DirectoryStore):
        for folder, _, _ in os.walk(unquote(urlsplit(store.url).path), topdown=False):
            with suppress(OSError):
                os.rmdir(folder)
