"""Stores: where a log's objects live. ``open_store`` finds the one that a URL or a path names."""

from stratalog.store.directory import DirectoryStore
from stratalog.store.locate import StoreLike, open_store, redact
from stratalog.store.memory import MemoryStore
from stratalog.store.mounts import UnsafeFileSystemWarning
from stratalog.store.prefixed import PrefixedStore
from stratalog.store.protocol import Blob, Head, Listed, Store, content_etag

__all__ = [
    "Blob",
    "DirectoryStore",
    "Head",
    "Listed",
    "MemoryStore",
    "PrefixedStore",
    "Store",
    "StoreLike",
    "UnsafeFileSystemWarning",
    "content_etag",
    "open_store",
    "redact",
]
