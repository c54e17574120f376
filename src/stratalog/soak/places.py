"""Where a fork of a log may lie: beside it, in the same bucket or on the same disk."""

from __future__ import annotations

import os
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from stratalog.store import DirectoryStore, MemoryStore, PrefixedStore, Store, open_store


def place_beside(store: Store, suffix: str) -> Store | None:
    """A place whose name is that of the log with a suffix. None where there is no such place."""
    if isinstance(store, PrefixedStore):
        top = store.inner.url.rstrip("/") + "/"
        return PrefixedStore(store.inner, f"{store.url.removeprefix(top)}-{suffix}")
    if isinstance(store, MemoryStore) and open_store(store.url) is not store:
        return None  # it has no name by which a fork could find it
    if isinstance(store, DirectoryStore | MemoryStore):
        return open_store(f"{store.url}-{suffix}")
    return None


def remove_empty_folders(store: Store) -> None:
    """What a directory leaves where a log was destroyed. Folders with anything in them stay."""
    if isinstance(store, DirectoryStore):
        for folder, _, _ in os.walk(unquote(urlsplit(store.url).path), topdown=False):
            with suppress(OSError):
                os.rmdir(folder)
