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

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from stratalog import errors as errors
from stratalog._version import __version__ as __version__
from stratalog.errors import StratalogError as StratalogError

if TYPE_CHECKING:
    from stratalog import sync as sync
    from stratalog.herd import DirtyLog as DirtyLog
    from stratalog.herd import Herd as Herd
    from stratalog.herd import HerdLog as HerdLog
    from stratalog.herd import HerdOptions as HerdOptions
    from stratalog.herd import Mark as Mark
    from stratalog.herd import RolledUp as RolledUp
    from stratalog.herd import RollUpOptions as RollUpOptions
    from stratalog.herd import roll_up as roll_up
    from stratalog.indexset import IndexSet as IndexSet
    from stratalog.objectlog import Collected as Collected
    from stratalog.objectlog import Collector as Collector
    from stratalog.objectlog import CollectorOptions as CollectorOptions
    from stratalog.objectlog import Compacted as Compacted
    from stratalog.objectlog import CompactOptions as CompactOptions
    from stratalog.objectlog import Copied as Copied
    from stratalog.objectlog import CopyOptions as CopyOptions
    from stratalog.objectlog import CopyProgress as CopyProgress
    from stratalog.objectlog import Cursor as Cursor
    from stratalog.objectlog import CursorStore as CursorStore
    from stratalog.objectlog import Forked as Forked
    from stratalog.objectlog import Fragment as Fragment
    from stratalog.objectlog import Garbage as Garbage
    from stratalog.objectlog import Limits as Limits
    from stratalog.objectlog import Live as Live
    from stratalog.objectlog import LogPosition as LogPosition
    from stratalog.objectlog import LogReader as LogReader
    from stratalog.objectlog import LogWriter as LogWriter
    from stratalog.objectlog import Manifest as Manifest
    from stratalog.objectlog import Outlook as Outlook
    from stratalog.objectlog import Pin as Pin
    from stratalog.objectlog import PinStore as PinStore
    from stratalog.objectlog import PlanState as PlanState
    from stratalog.objectlog import Policy as Policy
    from stratalog.objectlog import PolicyStore as PolicyStore
    from stratalog.objectlog import Presence as Presence
    from stratalog.objectlog import ReaderOptions as ReaderOptions
    from stratalog.objectlog import Record as Record
    from stratalog.objectlog import Removed as Removed
    from stratalog.objectlog import Retained as Retained
    from stratalog.objectlog import Retention as Retention
    from stratalog.objectlog import ScrubOptions as ScrubOptions
    from stratalog.objectlog import Seal as Seal
    from stratalog.objectlog import Sealer as Sealer
    from stratalog.objectlog import Snapshot as Snapshot
    from stratalog.objectlog import SnapshotPointer as SnapshotPointer
    from stratalog.objectlog import Span as Span
    from stratalog.objectlog import SweepOptions as SweepOptions
    from stratalog.objectlog import Thresholds as Thresholds
    from stratalog.objectlog import WriterOptions as WriterOptions
    from stratalog.objectlog import abort_fork as abort_fork
    from stratalog.objectlog import collect as collect
    from stratalog.objectlog import compact as compact
    from stratalog.objectlog import copy_log as copy_log
    from stratalog.objectlog import create_log as create_log
    from stratalog.objectlog import fork as fork
    from stratalog.objectlog.backup import BackedUp as BackedUp
    from stratalog.objectlog.backup import Backup as Backup
    from stratalog.objectlog.backup import BackupProgress as BackupProgress
    from stratalog.objectlog.backup import Restored as Restored
    from stratalog.objectlog.backup import backup as backup
    from stratalog.objectlog.backup import check_backup as check_backup
    from stratalog.objectlog.backup import list_backups as list_backups
    from stratalog.objectlog.backup import restore as restore
    from stratalog.objectlog.branch import DestroyReport as DestroyReport
    from stratalog.objectlog.branch import destroy as destroy
    from stratalog.objectlog.check import Damage as Damage
    from stratalog.objectlog.check import DamageKind as DamageKind
    from stratalog.objectlog.check import RepairReport as RepairReport
    from stratalog.objectlog.check import ScrubReport as ScrubReport
    from stratalog.objectlog.check import VerifyReport as VerifyReport
    from stratalog.objectlog.check import repair as repair
    from stratalog.objectlog.check import scrub as scrub
    from stratalog.objectlog.check import verify as verify
    from stratalog.objectlog.collection import SweepReport as SweepReport
    from stratalog.objectlog.collection import sweep as sweep
    from stratalog.objectlog.erasure import Certificate as Certificate
    from stratalog.objectlog.erasure import CertificateCheck as CertificateCheck
    from stratalog.objectlog.erasure import CertificateReport as CertificateReport
    from stratalog.objectlog.erasure import Erasable as Erasable
    from stratalog.objectlog.erasure import Holder as Holder
    from stratalog.objectlog.erasure import erase as erase
    from stratalog.objectlog.erasure import finish_erasures as finish_erasures
    from stratalog.objectlog.erasure import list_certificates as list_certificates
    from stratalog.objectlog.erasure import load_certificate as load_certificate
    from stratalog.objectlog.erasure import preview_erasure as preview_erasure
    from stratalog.objectlog.erasure import verify_certificate as verify_certificate
    from stratalog.objectlog.holds import Stage as Stage
    from stratalog.objectlog.holds import UploadGuard as UploadGuard
    from stratalog.setsum import Setsum as Setsum
    from stratalog.store import Store as Store
    from stratalog.store import open_store as open_store

logging.getLogger("stratalog").addHandler(logging.NullHandler())

_NAMES = {
    "herd": "DirtyLog Herd HerdLog HerdOptions Mark RolledUp RollUpOptions roll_up",
    "indexset": "IndexSet",
    "objectlog": """
        Collected Collector CollectorOptions Compacted CompactOptions Copied CopyOptions
        CopyProgress Cursor CursorStore Forked Fragment Garbage Limits Live LogPosition LogReader
        LogWriter Manifest Outlook Pin PinStore PlanState Policy PolicyStore Presence
        ReaderOptions Record Removed Retained Retention ScrubOptions Seal Sealer Snapshot
        SnapshotPointer Span SweepOptions Thresholds WriterOptions abort_fork collect compact
        copy_log create_log fork
    """,
    "objectlog.backup": """
        BackedUp Backup BackupProgress Restored backup check_backup list_backups restore
    """,
    "objectlog.branch": "DestroyReport destroy",
    "objectlog.check": """
        Damage DamageKind RepairReport ScrubReport VerifyReport repair scrub verify
    """,
    "objectlog.collection": "SweepReport sweep",
    "objectlog.erasure": """
        Certificate CertificateCheck CertificateReport Erasable Holder erase finish_erasures
        list_certificates load_certificate preview_erasure verify_certificate
    """,
    "objectlog.holds": "Stage UploadGuard",
    "setsum": "Setsum",
    "store": "Store open_store",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_HOMES, "StratalogError", "__version__", "errors", "sync"])

if not TYPE_CHECKING:  # a checker would believe that every name is there

    def __getattr__(name: str) -> object:
        if name == "sync":
            return import_module("stratalog.sync")
        if name not in _HOMES:
            raise AttributeError(f"module 'stratalog' has no attribute {name!r}")
        value = getattr(import_module(f"stratalog.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
