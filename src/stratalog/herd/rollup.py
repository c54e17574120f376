"""Roll-up: from the marks of all servers to the logs that have work to do.

    read marks ──► read each log ──► append what stays ──► move the cursors ──► collect

A mark is dropped only if it shows that its log has nothing left to do (``Mark.may_go``). The others
are merged, one mark a log, and appended to the worker's own dirty log before any cursor moves. So a
crash or an error duplicates marks and never loses one. The cost depends on how many logs are
marked, not on how many there are. See ``docs/design/007-herd.md``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from stratalog.errors import Conflict, Exists, Invalid, NotFound, StratalogError, Trimmed
from stratalog.herd.assignment import assign
from stratalog.herd.dirty_log import servers
from stratalog.herd.dirty_mark import Mark, put_back, together
from stratalog.herd.herd import Herd, offset_of
from stratalog.herd.names import SIDES, dirty_store, log_store
from stratalog.herd.options import RollUpOptions
from stratalog.objectlog import CollectorOptions
from stratalog.objectlog.collection import collect
from stratalog.objectlog.holds import Cursor, CursorStore
from stratalog.objectlog.read import LogReader
from stratalog.objectlog.stored import body_views, load_manifest
from stratalog.store import PatientStore, Store

log = logging.getLogger(__name__)

DEFAULT_OPTIONS = RollUpOptions()
ROLLUP_CURSOR = "rollup"
READ_TIMEOUT_S = 60.0

Reason = Literal["old", "big", "put back often"]


@dataclass(frozen=True, slots=True)
class DirtyLog:
    """A log that was written to since it was last compacted."""

    log_id: str
    name: str | None
    """What the herd calls it; None for a log that an older version has created."""

    tail: int
    compacted_upto: int
    """Where its compaction cursor is, or where the log begins if it has none."""

    first_us: int
    """When it was first marked since it was last clean."""

    reinsertions: int
    reason: Reason | None
    """Why it is selected, or None if it is not."""

    @property
    def records(self) -> int:
        """How many records wait."""
        return self.tail - self.compacted_upto


@dataclass(frozen=True, slots=True)
class RolledUp:
    """What a roll-up found."""

    marks: int
    """How many marks it read."""

    dirty: tuple[DirtyLog, ...]
    """The logs that keep a mark, those first that wait longest."""

    clean: int
    """How many marked logs have nothing to do any more."""

    gone: int
    """How many marked logs are not there any more."""

    troubles: tuple[str, ...]
    """What could not be read. Its marks are kept."""

    @property
    def selected(self) -> tuple[DirtyLog, ...]:
        return tuple(each for each in self.dirty if each.reason is not None)


@dataclass(frozen=True, slots=True)
class _Taken:
    """What was read of one dirty log."""

    store: Store
    marks: tuple[Mark, ...]
    cursor: Cursor
    limit: int


@dataclass(frozen=True, slots=True)
class _Looked:
    """What became of a marked log: the mark that stays, if any."""

    stays: Mark | None = None
    dirty: DirtyLog | None = None
    trouble: str | None = None
    is_gone: bool = False


async def roll_up(
    herd: Herd,
    *,
    workers: Collection[str] | None = None,
    options: RollUpOptions = DEFAULT_OPTIONS,
) -> RolledUp:
    """Find the logs that have work to do. ``herd`` was opened with this worker's name as server.

    With ``workers`` the dirty logs are divided among them; by default this one reads all.
    """
    if herd.server is None:
        raise Invalid(
            "a roll-up puts marks back, so it needs a name",
            hint="Name this process: Herd.open(url, server=...).",
        )
    return await _RollUp(herd, herd.server, workers or (herd.server,), options).run()


class _RollUp:
    def __init__(
        self, herd: Herd, worker: str, workers: Collection[str], options: RollUpOptions
    ) -> None:
        self._herd = herd
        self._worker = worker
        self._workers = workers
        self._options = options
        self._runtime = herd.runtime
        self._root = PatientStore(herd.root, herd.runtime, READ_TIMEOUT_S)
        self._reads = asyncio.Semaphore(options.reads_at_once)
        self._troubles: list[str] = []

    async def run(self) -> RolledUp:
        taken = [each async for each in self._taken()]
        by_log: defaultdict[str, list[Mark]] = defaultdict(list)
        for each in taken:
            for mark in each.marks:
                by_log[mark.log_id].append(mark)
        looked = await asyncio.gather(*(self._look(marks) for marks in by_log.values()))
        await self._herd.mark(each.stays for each in looked if each.stays is not None)
        for each in taken:
            await self._move(each)
        self._troubles += [each.trouble for each in looked if each.trouble is not None]
        dirty = [each.dirty for each in looked if each.dirty is not None]
        return RolledUp(
            marks=sum(len(each.marks) for each in taken),
            dirty=tuple(sorted(dirty, key=lambda each: (each.first_us, each.log_id))),
            clean=sum(each.stays is None and not each.is_gone for each in looked),
            gone=sum(each.is_gone for each in looked),
            troubles=tuple(self._troubles),
        )

    # Reading marks

    async def _taken(self) -> AsyncIterator[_Taken]:
        async for server in servers(self._root):
            for side in SIDES:
                if assign(f"{server}/{side}", self._workers) != self._worker:
                    continue
                try:
                    taken = await self._take(dirty_store(self._herd.root, server, side))
                except NotFound:
                    continue
                except StratalogError as error:
                    self._troubles.append(f"the marks of {server} ({side}): {error}")
                    continue
                if taken is not None:
                    yield taken

    async def _take(self, store: Store) -> _Taken | None:
        """The marks after the cursor. None if there are none."""
        async with LogReader.open(store, runtime=self._runtime) as reader:
            cursor = await self._cursor(store, reader.first_offset)
            first = max(cursor.offset, reader.first_offset)
            limit = min(reader.tail, first + self._options.marks_at_once)
            if first >= limit:
                return None
            marks = [
                Mark.from_bytes(body)
                async for batch in reader.batches(first, limit)
                for body in body_views(batch.column(2))
            ]
        return _Taken(store, tuple(marks), cursor, limit)

    async def _cursor(self, store: Store, first_offset: int) -> Cursor:
        cursors = CursorStore(store, writer=self._worker, runtime=self._runtime)
        try:
            return await cursors.load(ROLLUP_CURSOR)
        except NotFound:
            with contextlib.suppress(Exists):
                return await cursors.create(ROLLUP_CURSOR, first_offset)
        return await cursors.load(ROLLUP_CURSOR)

    # Looking at the logs

    async def _look(self, marks: Iterable[Mark]) -> _Looked:
        mark = together(marks)
        async with self._reads:
            try:
                return await self._judged(mark)
            except NotFound:
                return _Looked(is_gone=True)
            except StratalogError as error:
                return _Looked(stays=mark, trouble=f"the log {mark.log_id}: {error}")

    async def _judged(self, mark: Mark) -> _Looked:
        """The manifest is read before the cursor: see ``Mark.may_go``."""
        store = PatientStore(log_store(self._herd.root, mark.log_id), self._runtime, READ_TIMEOUT_S)
        manifest, _ = await load_manifest(store)
        cursors = CursorStore(store, runtime=self._runtime)
        cursor = await offset_of(cursors, self._options.compaction_cursor)
        upto = manifest.first_offset if cursor is None else cursor
        tail = manifest.tail.offset
        if mark.may_go(tail=tail, sweep_epoch=manifest.sweep_epoch, compacted_upto=upto):
            return _Looked()
        back = put_back(mark)
        return _Looked(
            stays=back,
            dirty=DirtyLog(
                log_id=mark.log_id,
                name=manifest.name,
                tail=tail,
                compacted_upto=upto,
                first_us=mark.first_us,
                reinsertions=back.reinsertions,
                reason=self._reason(mark, tail - upto),
            ),
        )

    def _reason(self, mark: Mark, records: int) -> Reason | None:
        if records >= self._options.records:
            return "big"
        if self._runtime.now_us() - mark.first_us >= self._options.age_s * 1e6:
            return "old"
        if mark.reinsertions >= self._options.reinsertions:
            return "put back often"
        return None

    # Afterwards

    async def _move(self, taken: _Taken) -> None:
        """What was read is done with. If another worker was faster, it has done the same."""
        try:
            await taken.cursor.move(taken.limit)
        except (Conflict, Trimmed):  # the faster one may have collected it already
            return
        except StratalogError as error:
            self._troubles.append(f"the marks of {taken.store.url} will be read again: {error}")
            return
        if self._options.collect:
            try:
                options = CollectorOptions(interval_s=0.0)
                await collect(taken.store, options=options, runtime=self._runtime)
            except StratalogError as error:
                log.info("a dirty log was not collected: %s", error)
