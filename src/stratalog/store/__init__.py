"""Stores: where a log's objects live. ``open_store`` finds the one that a URL or a path names."""

from stratalog.store.cas import Landed, Overtaken, Patience, create, put_made_once, put_once, swap
from stratalog.store.closing import close_json, open_json
from stratalog.store.counted import CountedStore, Usage
from stratalog.store.directory import DirectoryStore, UnsafeFileSystemWarning
from stratalog.store.doctor import Report, examine
from stratalog.store.document import (
    Document,
    Superseded,
    Version,
    closed,
    read_version,
    read_versions,
)
from stratalog.store.in_place import get_then
from stratalog.store.locate import CLOUD_SCHEMES, StoreLike, open_store, sibling
from stratalog.store.memory import MemoryStore
from stratalog.store.patient import PatientStore
from stratalog.store.prefixed import PrefixedStore
from stratalog.store.probes import PROBE_PREFIX, probe
from stratalog.store.protocol import Blob, Head, Listed, Store, check_path, content_etag
from stratalog.store.redaction import redact

# What users import to build stores of their own. The rest is for the rooms above.
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
