"""The log for code without an event loop: scripts, notebooks, Spark tasks.

    from stratalog import sync

    with sync.LogWriter.open("orders-log", create=True) as log:
        position = log.append(b"one")

    with sync.LogReader.open("orders-log") as reader:
        table = reader.to_arrow(from_offset=1)

The classes are derived from the async ones, method by method, and mean the same. They run on one
event loop in a thread of its own, which all of them share; any number of threads may use one
object. ``submit`` gives a ``concurrent.futures.Future``; async iterators become plain ones.

After a fork the child opens its own objects. A ``LogReader`` and a ``CursorStore`` that were
opened by URL or path can also be pickled: they are opened again where they are unpickled.
"""

from __future__ import annotations

from typing import Any

from stratalog import objectlog as aio
from stratalog.objectlog.pickling import sendable
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import StoreLike
from stratalog.sync.derived import (
    OpenedTwin,
    Twin,
    blocking,
    blocking_as,
    blocking_function,
    iterating,
    opening,
    passing,
    submitting,
)

RECORDS_AT_ONCE = 1024

create_log = blocking_function(aio.create_log)


class LogWriter(OpenedTwin[aio.LogWriter]):
    """Appends records to one log. Made by ``LogWriter.open``."""

    open = opening(aio.LogWriter.open)

    append = blocking(aio.LogWriter.append)
    append_many = blocking(aio.LogWriter.append_many)
    submit = submitting(aio.LogWriter.submit)
    drain = blocking(aio.LogWriter.drain)
    flush = blocking(aio.LogWriter.flush)
    close = blocking(aio.LogWriter.close)

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

    def __init__(
        self, url: StoreLike, *, writer: str | None = None, runtime: Runtime = DEFAULT_RUNTIME
    ) -> None:
        twin = self._around(aio.CursorStore(url, writer=writer, runtime=runtime))
        self._aio, self._thread = twin._aio, twin._thread

    create = blocking_as(Cursor._around, aio.CursorStore.create)
    load = blocking_as(Cursor._around, aio.CursorStore.load)
    list = blocking_as(lambda found: [Cursor._around(each) for each in found], aio.CursorStore.list)

    def __reduce__(self) -> tuple[Any, ...]:
        return CursorStore._around, (self._aio,)


def _open_again(cls: type[LogReader], arguments: dict[str, Any]) -> LogReader:
    return cls.open(**arguments)


__all__ = ["Cursor", "CursorStore", "LogReader", "LogWriter", "create_log"]
