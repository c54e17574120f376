"""Stratalog: a linearizable log that lives in object storage.

    import stratalog as sl

    async with sl.LogWriter.open("orders-log", create=True) as log:
        position = await log.append(b"one")

    async with sl.LogReader.open("orders-log") as reader:
        async for record in reader.records():
            print(record.offset, record.body)

``stratalog.sync`` has the same names for code without an event loop.
"""

from __future__ import annotations

import logging
from types import ModuleType
from typing import TYPE_CHECKING

from stratalog import errors
from stratalog._version import __version__
from stratalog.errors import StratalogError
from stratalog.objectlog import (
    Cursor,
    CursorStore,
    Fragment,
    Limits,
    LogPosition,
    LogReader,
    LogWriter,
    Manifest,
    ReaderOptions,
    Record,
    Snapshot,
    SnapshotPointer,
    Span,
    WriterOptions,
    create_log,
)
from stratalog.setsum import Setsum
from stratalog.store import Store, open_store

if TYPE_CHECKING:
    from stratalog import sync as sync

logging.getLogger("stratalog").addHandler(logging.NullHandler())


def __getattr__(name: str) -> ModuleType:
    """``stratalog.sync`` starts nothing until it is used, and is loaded only then."""
    if name == "sync":
        import importlib

        return importlib.import_module("stratalog.sync")
    raise AttributeError(f"module 'stratalog' has no attribute {name!r}")


__all__ = [
    "Cursor",
    "CursorStore",
    "Fragment",
    "Limits",
    "LogPosition",
    "LogReader",
    "LogWriter",
    "Manifest",
    "ReaderOptions",
    "Record",
    "Setsum",
    "Snapshot",
    "SnapshotPointer",
    "Span",
    "Store",
    "StratalogError",
    "WriterOptions",
    "__version__",
    "create_log",
    "errors",
    "open_store",
]
