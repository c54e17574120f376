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
        Seal,
        Sealer,
        Snapshot,
        SnapshotPointer,
        Span,
        Thresholds,
        WriterOptions,
        abort_fork,
        collect,
        compact,
        copy_log,
        create_log,
        fork,
    )
    from stratalog.objectlog.certificate import Certificate, list_certificates, load_certificate
    from stratalog.objectlog.certifying import (
        CertificateCheck,
        CertificateReport,
        verify_certificate,
    )
    from stratalog.objectlog.damage import Damage, DamageKind
    from stratalog.objectlog.destroy import DestroyReport, destroy
    from stratalog.objectlog.erasing import Erasable, erase, finish_erasures, preview_erasure
    from stratalog.objectlog.holding import Holder
    from stratalog.objectlog.options import ScrubOptions, SweepOptions
    from stratalog.objectlog.repair import RepairReport, repair
    from stratalog.objectlog.scrub import scrub
    from stratalog.objectlog.scrub_report import ScrubReport
    from stratalog.objectlog.stage import Stage
    from stratalog.objectlog.sweep import SweepReport, sweep
    from stratalog.objectlog.verification import VerifyReport, verify
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
    "Certificate": "stratalog.objectlog.certificate",
    "CertificateCheck": "stratalog.objectlog.certifying",
    "CertificateReport": "stratalog.objectlog.certifying",
    "Damage": "stratalog.objectlog.damage",
    "DamageKind": "stratalog.objectlog.damage",
    "DestroyReport": "stratalog.objectlog.destroy",
    "DirtyLog": "stratalog.herd",
    "Herd": "stratalog.herd",
    "HerdLog": "stratalog.herd",
    "HerdOptions": "stratalog.herd",
    "Holder": "stratalog.objectlog.holding",
    "IndexSet": "stratalog.indexset",
    "Mark": "stratalog.herd",
    "RepairReport": "stratalog.objectlog.repair",
    "RollUpOptions": "stratalog.herd",
    "RolledUp": "stratalog.herd",
    "ScrubOptions": "stratalog.objectlog.options",
    "ScrubReport": "stratalog.objectlog.scrub_report",
    "Setsum": "stratalog.setsum",
    "Stage": "stratalog.objectlog.stage",
    "Store": "stratalog.store",
    "SweepOptions": "stratalog.objectlog.options",
    "SweepReport": "stratalog.objectlog.sweep",
    "VerifyReport": "stratalog.objectlog.verification",
    "destroy": "stratalog.objectlog.destroy",
    "Erasable": "stratalog.objectlog.erasing",
    "erase": "stratalog.objectlog.erasing",
    "preview_erasure": "stratalog.objectlog.erasing",
    "finish_erasures": "stratalog.objectlog.erasing",
    "list_certificates": "stratalog.objectlog.certificate",
    "load_certificate": "stratalog.objectlog.certificate",
    "open_store": "stratalog.store",
    "repair": "stratalog.objectlog.repair",
    "roll_up": "stratalog.herd",
    "scrub": "stratalog.objectlog.scrub",
    "sweep": "stratalog.objectlog.sweep",
    "verify": "stratalog.objectlog.verification",
    "verify_certificate": "stratalog.objectlog.certifying",
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
