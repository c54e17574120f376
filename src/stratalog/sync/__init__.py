"""The log for code without an event loop: scripts, notebooks, Spark tasks.

    from stratalog import sync

    with sync.LogWriter.open("orders-log", create=True) as log:
        position = log.append(b"one")

    with sync.LogReader.open("orders-log") as reader:
        table = reader.to_arrow(from_offset=1)

The classes are derived from the async ones, method by method, and mean the same. They run on one
event loop in a thread of its own, which all of them share; any number of threads may use one
object. ``submit`` gives a ``concurrent.futures.Future``; async iterators become plain ones; a
function that is handed over (``on_progress``) is called in the loop's thread.

After a fork the child opens its own objects. A ``LogReader`` and a ``CursorStore`` that were
opened by URL or path can also be pickled: they are opened again where they are unpickled.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from stratalog import herd as aio_herd
from stratalog import objectlog as aio
from stratalog.blocking import loop_thread
from stratalog.errors import Invalid
from stratalog.herd import DEFAULT_OPTIONS as DEFAULT_ROLL_UP
from stratalog.herd import DEFAULT_READER, RolledUp, RollUpOptions
from stratalog.indexset import EMPTY as NOTHING
from stratalog.indexset import IndexSet
from stratalog.objectlog import (
    Collected,
    CollectorOptions,
    Compacted,
    CompactOptions,
    ReaderOptions,
    branch,
    check,
    collection,
    erasure,
    sendable,
)
from stratalog.objectlog import backup as aio_backup
from stratalog.objectlog.collection import DEFAULT_OPTIONS, OnRemoved
from stratalog.objectlog.compaction import DEFAULT_OPTIONS as DEFAULT_COMPACT
from stratalog.objectlog.compaction import OnProgress as OnCompactProgress
from stratalog.renamed import renamed_function, renamed_parameters
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import StoreLike
from stratalog.sync.derived import (
    OpenedTwin,
    Twin,
    blocking,
    blocking_as,
    blocking_function,
    calling,
    constructing,
    iterating,
    opening,
    passing,
    submitting,
)

RECORDS_AT_ONCE = 1024

abort_fork = blocking_function(aio.abort_fork)
backup = blocking_function(aio_backup.backup)
check_backup = blocking_function(aio_backup.check_backup)
copy_log = blocking_function(aio.copy_log)
create_log = blocking_function(aio.create_log)
destroy = blocking_function(branch.destroy)
fork = blocking_function(aio.fork)
list_backups = blocking_function(aio_backup.list_backups)
repair = blocking_function(check.repair)
restore = blocking_function(aio_backup.restore)
scrub = blocking_function(check.scrub)
sweep = blocking_function(collection.sweep)
verify = blocking_function(check.verify)

erase = blocking_function(erasure.erase)
finish_erasures = blocking_function(erasure.finish_erasures)
list_certificates = blocking_function(erasure.list_certificates)
load_certificate = blocking_function(erasure.load_certificate)
preview_erasure = blocking_function(erasure.preview_erasure)
verify_certificate = blocking_function(erasure.verify_certificate)


class LogWriter(OpenedTwin[aio.LogWriter]):
    """Appends records to one log. Made by ``LogWriter.open``."""

    open = opening(aio.LogWriter.open)

    append = blocking(aio.LogWriter.append)
    append_many = blocking(aio.LogWriter.append_many)
    submit = submitting(aio.LogWriter.submit)
    drain = blocking(aio.LogWriter.drain)
    flush = blocking(aio.LogWriter.flush)
    close = blocking(aio.LogWriter.close)
    amend = blocking(aio.LogWriter.amend)

    manifest = passing(aio.LogWriter.manifest)
    tail = passing(aio.LogWriter.tail)
    incarnation = passing(aio.LogWriter.incarnation)
    stats = passing(aio.LogWriter.stats)


class LogReader(OpenedTwin[aio.LogReader]):
    """Reads one log. Made by ``LogReader.open``."""

    open = opening(aio.LogReader.open)

    refresh = blocking(aio.LogReader.refresh)
    scan = blocking(aio.LogReader.scan)
    fetch = blocking(aio.LogReader.fetch)
    batches = iterating(aio.LogReader.batches)
    records = iterating(aio.LogReader.records, at_once=RECORDS_AT_ONCE)
    follow = iterating(aio.LogReader.follow)
    to_arrow = blocking(aio.LogReader.to_arrow)
    presence = blocking(aio.LogReader.presence)
    close = blocking(aio.LogReader.close)

    manifest = passing(aio.LogReader.manifest)
    first_offset = passing(aio.LogReader.first_offset)
    tail = passing(aio.LogReader.tail)
    stats = passing(aio.LogReader.stats)

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = self._opened_with
        return _open_again, (type(self), {**arguments, "url": sendable(arguments["url"])})


class Cursor(Twin[aio.Cursor]):
    """One version of a cursor: what it says, and the witness needed to change it."""

    move = blocking_as(lambda moved: Cursor._around(moved), aio.Cursor.move)
    delete = blocking(aio.Cursor.delete)
    holds = calling(aio.Cursor.holds)

    name = passing(aio.Cursor.name)
    position = passing(aio.Cursor.position)
    offset = passing(aio.Cursor.offset)
    epoch_us = passing(aio.Cursor.epoch_us)
    writer = passing(aio.Cursor.writer)

    def __reduce__(self) -> tuple[Any, ...]:
        return Cursor._around, (self._aio,)

    def __repr__(self) -> str:
        return f"sync.{self._aio!r}"


class CursorStore(Twin[aio.CursorStore]):
    """The cursors of one log."""

    @constructing(aio.CursorStore)
    def __init__(self) -> None: ...

    create = blocking_as(Cursor._around, aio.CursorStore.create)
    load = blocking_as(Cursor._around, aio.CursorStore.load)
    list = blocking_as(lambda found: [Cursor._around(each) for each in found], aio.CursorStore.list)

    def __reduce__(self) -> tuple[Any, ...]:
        return CursorStore._around, (self._aio,)


class Pin(Twin[aio.Pin]):
    """One version of a pin: what it says, and the witness needed to change it."""

    renew = blocking_as(lambda renewed: Pin._around(renewed), aio.Pin.renew)
    release = blocking(aio.Pin.release)

    name = passing(aio.Pin.name)
    from_offset = passing(aio.Pin.from_offset)
    to_offset = passing(aio.Pin.to_offset)
    owner = passing(aio.Pin.owner)
    note = passing(aio.Pin.note)
    created_us = passing(aio.Pin.created_us)
    expires_us = passing(aio.Pin.expires_us)
    entries = passing(aio.Pin.entries)
    window = passing(aio.Pin.window)
    fragment_bytes = passing(aio.Pin.fragment_bytes)

    def __repr__(self) -> str:
        return f"sync.{self._aio!r}"


class PinStore(Twin[aio.PinStore]):
    """The pins of one log."""

    @constructing(aio.PinStore)
    def __init__(self) -> None: ...

    create = blocking_as(Pin._around, aio.PinStore.create)
    load = blocking_as(Pin._around, aio.PinStore.load)
    retire = blocking(aio.PinStore.retire)
    use_up = renamed_function("PinStore.use_up", retire)
    list = blocking_as(lambda found: _pins(found), aio.PinStore.list)
    list_all = blocking_as(lambda found: _pins(found), aio.PinStore.list_all)
    release_expired = blocking_as(
        lambda found: (_pins(found[0]), _pins(found[1])), aio.PinStore.release_expired
    )
    sort_out = renamed_function("PinStore.sort_out", release_expired)

    def clear(self, pin: Pin) -> None:
        """Forget the pointers of a released pin, once nothing is left of what only it held."""
        self._thread.run(lambda: self._aio.clear(pin._aio))


class PolicyStore(Twin[aio.PolicyStore]):
    """The policy of one log."""

    @constructing(aio.PolicyStore)
    def __init__(self) -> None: ...

    load = blocking(aio.PolicyStore.load)
    set = blocking(aio.PolicyStore.set)
    remove = blocking(aio.PolicyStore.remove)
    hold = blocking(aio.PolicyStore.hold)
    retain = blocking(aio.PolicyStore.retain)
    check_live = blocking(aio.PolicyStore.check_live)
    note_judged = blocking(aio.PolicyStore.note_judged)


class Sealer(Twin[aio.Sealer]):
    """Seals one log."""

    @constructing(aio.Sealer)
    def __init__(self) -> None: ...

    seal = blocking(aio.Sealer.seal)
    state = blocking(aio.Sealer.state)
    migrate = blocking(aio.Sealer.migrate)


class Collector(Twin[aio.Collector]):
    """Collects one log. ``log_writer``, an open one of this process, writes the manifest for it."""

    @renamed_parameters(through="log_writer")
    def __init__(
        self,
        url: StoreLike,
        *,
        writer: str | None = None,
        log_writer: LogWriter | None = None,
        options: CollectorOptions = DEFAULT_OPTIONS,
        runtime: Runtime = DEFAULT_RUNTIME,
    ) -> None:
        self._aio = aio.Collector(
            url, writer=writer, log_writer=_behind(log_writer), options=options, runtime=runtime
        )
        self._thread = loop_thread()

    plan = blocking(aio.Collector.plan)
    preview = blocking(aio.Collector.preview)
    compute = blocking(aio.Collector.compute)
    publish = blocking(aio.Collector.publish)
    delete = blocking(aio.Collector.delete)
    cancel = blocking(aio.Collector.cancel)
    clear_pins = blocking(aio.Collector.clear_pins)
    collect = blocking(aio.Collector.collect)
    finish = blocking(aio.Collector.finish)
    run = blocking(aio.Collector.run)


class HerdLog(Twin[aio_herd.HerdLog]):
    """One log of a herd, opened when it is used."""

    id = blocking(aio_herd.HerdLog.id)
    store = blocking(aio_herd.HerdLog.store)
    append = blocking(aio_herd.HerdLog.append)
    append_many = blocking(aio_herd.HerdLog.append_many)
    cursors = blocking_as(CursorStore._around, aio_herd.HerdLog.cursors)
    close = blocking(aio_herd.HerdLog.close)
    close_if_idle = blocking(aio_herd.HerdLog.close_if_idle)

    name = passing(aio_herd.HerdLog.name)
    is_open = passing(aio_herd.HerdLog.is_open)
    is_idle = passing(aio_herd.HerdLog.is_idle)

    def reader(self, *, options: ReaderOptions = DEFAULT_READER) -> LogReader:
        """A reader of it, as that of ``LogReader.open``."""
        return LogReader.open(self.store(), options=options)


class Herd(OpenedTwin[aio_herd.Herd]):
    """The logs under one root. Made by ``Herd.open``."""

    open = opening(aio_herd.Herd.open)

    create = blocking_as(HerdLog._around, aio_herd.Herd.create)
    names = iterating(aio_herd.Herd.names, at_once=RECORDS_AT_ONCE)
    store_of = calling(aio_herd.Herd.store_of)
    drop = blocking(aio_herd.Herd.drop)
    mark = blocking(aio_herd.Herd.mark)
    close = blocking(aio_herd.Herd.close)

    root = passing(aio_herd.Herd.root)
    server = passing(aio_herd.Herd.server)
    runtime = passing(aio_herd.Herd.runtime)
    open_writers = passing(aio_herd.Herd.open_writers)

    def log(self, name: str) -> HerdLog:
        """A log by name. Nothing is read before it is used; ``NotFound`` comes then."""
        return HerdLog._around(self._aio.log(name))


def roll_up(
    herd: Herd,
    *,
    workers: Collection[str] | None = None,
    options: RollUpOptions = DEFAULT_ROLL_UP,
) -> RolledUp:
    return herd._thread.run(lambda: aio_herd.roll_up(herd._aio, workers=workers, options=options))


@renamed_parameters(through="log_writer")
def collect(
    url: StoreLike,
    *,
    cut_off: int | None = None,
    log_writer: LogWriter | None = None,
    on_progress: OnRemoved | None = None,
    options: CollectorOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Collected:
    collector = Collector(url, log_writer=log_writer, options=options, runtime=runtime)
    return collector.collect(cut_off, on_progress)


@renamed_parameters(pressing="must_drop", through="log_writer")
def compact(
    url: StoreLike,
    live: IndexSet,
    *,
    up_to: int,
    must_drop: IndexSet = NOTHING,
    log_writer: LogWriter | None = None,
    on_progress: OnCompactProgress | None = None,
    writer: str | None = None,
    options: CompactOptions = DEFAULT_COMPACT,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Compacted:
    inner = _behind(log_writer)
    return loop_thread().run(
        lambda: aio.compact(
            url,
            live,
            up_to=up_to,
            must_drop=must_drop,
            log_writer=inner,
            on_progress=on_progress,
            writer=writer,
            options=options,
            runtime=runtime,
        )
    )


roll_up.__doc__ = aio_herd.roll_up.__doc__
collect.__doc__ = aio.collect.__doc__
compact.__doc__ = aio.compact.__doc__


def _pins(found: list[aio.Pin]) -> list[Pin]:
    return [Pin._around(each) for each in found]


def _behind(log_writer: LogWriter | None) -> aio.LogWriter | None:
    """The async writer behind a blocking one: it lives in the loop where the collector runs."""
    given: object = log_writer
    if given is not None and not isinstance(given, LogWriter):
        raise Invalid(
            f"log_writer is a writer of stratalog.sync, not a {type(given).__name__}",
            hint="Open it with stratalog.sync.LogWriter.open.",
        )
    if log_writer is None:
        return None
    log_writer._thread.check()
    return log_writer._aio


def _open_again(cls: type[LogReader], arguments: dict[str, Any]) -> LogReader:
    return cls.open(**arguments)


__all__ = [
    "Collector",
    "Cursor",
    "CursorStore",
    "Herd",
    "HerdLog",
    "LogReader",
    "LogWriter",
    "Pin",
    "PinStore",
    "PolicyStore",
    "Sealer",
    "abort_fork",
    "collect",
    "compact",
    "copy_log",
    "create_log",
    "destroy",
    "erase",
    "finish_erasures",
    "fork",
    "list_certificates",
    "load_certificate",
    "preview_erasure",
    "repair",
    "roll_up",
    "scrub",
    "sweep",
    "verify",
    "verify_certificate",
]
