"""Stratalog: a linearizable log that lives in object storage.

    import stratalog as sl

    async with sl.LogWriter.open("orders-log", create=True) as log:
        position = await log.append(b"one")

    async with sl.LogReader.open("orders-log") as reader:
        async for record in reader.records():
            print(record.offset, record.body)

``stratalog.sync`` has the same names for code without an event loop.

Names are loaded when they are first used: a program that only asks for the version, or for help,
does not pay for Arrow.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from stratalog import errors
from stratalog._version import __version__
from stratalog.errors import StratalogError

if TYPE_CHECKING:
    from stratalog import sync
    from stratalog.herd import (
        DirtyLog,
        Herd,
        HerdLog,
        HerdOptions,
        Mark,
        RolledUp,
        RollUpOptions,
        roll_up,
    )
    from stratalog.indexset import IndexSet
    from stratalog.objectlog import (
        Collected,
        Collector,
        CollectorOptions,
        Compacted,
        CompactOptions,
        Copied,
        CopyOptions,
        CopyProgress,
        Cursor,
        CursorStore,
        Forked,
        Fragment,
        Garbage,
        Limits,
        Live,
        LogPosition,
        LogReader,
        LogWriter,
        Manifest,
        Outlook,
        Pin,
        PinStore,
        PlanState,
        Policy,
        PolicyStore,
        Presence,
        ReaderOptions,
        Record,
        Removed,
        Retained,
        Retention,
        ScrubOptions,
        Seal,
        Sealer,
        Snapshot,
        SnapshotPointer,
        Span,
        SweepOptions,
        Thresholds,
        WriterOptions,
        abort_fork,
        collect,
        compact,
        copy_log,
        create_log,
        fork,
    )
    from stratalog.objectlog.branch import DestroyReport, destroy
    from stratalog.objectlog.check import (
        Damage,
        DamageKind,
        RepairReport,
        ScrubReport,
        VerifyReport,
        repair,
        scrub,
        verify,
    )
    from stratalog.objectlog.collection import SweepReport, sweep
    from stratalog.objectlog.erasure import (
        Certificate,
        CertificateCheck,
        CertificateReport,
        Erasable,
        Holder,
        erase,
        finish_erasures,
        list_certificates,
        load_certificate,
        preview_erasure,
        verify_certificate,
    )
    from stratalog.objectlog.holds import Stage, UploadGuard
    from stratalog.setsum import Setsum
    from stratalog.store import Store, open_store

logging.getLogger("stratalog").addHandler(logging.NullHandler())

__all__ = [
    "Certificate",
    "CertificateCheck",
    "CertificateReport",
    "Collected",
    "Collector",
    "CollectorOptions",
    "CompactOptions",
    "Compacted",
    "Copied",
    "CopyOptions",
    "CopyProgress",
    "Cursor",
    "CursorStore",
    "Damage",
    "DamageKind",
    "DestroyReport",
    "DirtyLog",
    "Erasable",
    "Forked",
    "Fragment",
    "Garbage",
    "Herd",
    "HerdLog",
    "HerdOptions",
    "Holder",
    "IndexSet",
    "Limits",
    "Live",
    "LogPosition",
    "LogReader",
    "LogWriter",
    "Manifest",
    "Mark",
    "Outlook",
    "Pin",
    "PinStore",
    "PlanState",
    "Policy",
    "PolicyStore",
    "Presence",
    "ReaderOptions",
    "Record",
    "Removed",
    "RepairReport",
    "Retained",
    "Retention",
    "RollUpOptions",
    "RolledUp",
    "ScrubOptions",
    "ScrubReport",
    "Seal",
    "Sealer",
    "Setsum",
    "Snapshot",
    "SnapshotPointer",
    "Span",
    "Stage",
    "Store",
    "StratalogError",
    "SweepOptions",
    "SweepReport",
    "Thresholds",
    "UploadGuard",
    "VerifyReport",
    "WriterOptions",
    "__version__",
    "abort_fork",
    "collect",
    "compact",
    "copy_log",
    "create_log",
    "destroy",
    "erase",
    "errors",
    "finish_erasures",
    "fork",
    "list_certificates",
    "load_certificate",
    "open_store",
    "preview_erasure",
    "repair",
    "roll_up",
    "scrub",
    "sweep",
    "sync",
    "verify",
    "verify_certificate",
]

_HOMES = {
    "Certificate": "stratalog.objectlog.erasure",
    "CertificateCheck": "stratalog.objectlog.erasure",
    "CertificateReport": "stratalog.objectlog.erasure",
    "Damage": "stratalog.objectlog.check",
    "DamageKind": "stratalog.objectlog.check",
    "DestroyReport": "stratalog.objectlog.branch",
    "DirtyLog": "stratalog.herd",
    "Herd": "stratalog.herd",
    "HerdLog": "stratalog.herd",
    "HerdOptions": "stratalog.herd",
    "Holder": "stratalog.objectlog.erasure",
    "IndexSet": "stratalog.indexset",
    "Mark": "stratalog.herd",
    "RepairReport": "stratalog.objectlog.check",
    "RollUpOptions": "stratalog.herd",
    "RolledUp": "stratalog.herd",
    "ScrubOptions": "stratalog.objectlog",
    "ScrubReport": "stratalog.objectlog.check",
    "Setsum": "stratalog.setsum",
    "Stage": "stratalog.objectlog.holds",
    "Store": "stratalog.store",
    "SweepOptions": "stratalog.objectlog",
    "SweepReport": "stratalog.objectlog.collection",
    "UploadGuard": "stratalog.objectlog.holds",
    "VerifyReport": "stratalog.objectlog.check",
    "destroy": "stratalog.objectlog.branch",
    "Erasable": "stratalog.objectlog.erasure",
    "erase": "stratalog.objectlog.erasure",
    "preview_erasure": "stratalog.objectlog.erasure",
    "finish_erasures": "stratalog.objectlog.erasure",
    "list_certificates": "stratalog.objectlog.erasure",
    "load_certificate": "stratalog.objectlog.erasure",
    "open_store": "stratalog.store",
    "repair": "stratalog.objectlog.check",
    "roll_up": "stratalog.herd",
    "scrub": "stratalog.objectlog.check",
    "sweep": "stratalog.objectlog.collection",
    "verify": "stratalog.objectlog.check",
    "verify_certificate": "stratalog.objectlog.erasure",
}


def __getattr__(name: str) -> object:
    if name == "sync":
        return import_module("stratalog.sync")
    if name not in __all__:
        raise AttributeError(f"module 'stratalog' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES.get(name, "stratalog.objectlog")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
