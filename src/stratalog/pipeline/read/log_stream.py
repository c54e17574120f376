"""A log as a streaming query sees it: where to start, how far to go, what is done with.

Everything before the offset that Spark names as the start of the next batch has been processed:
the engine runs one batch at a time. So the query's cursor moves, and pins are released, when Spark
says ``commit`` and also when it asks for the next batch, which it does even if there is none.

With a cursor, collection waits for the query. Without one, each batch is pinned while it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from dataclasses import replace

from stratalog.errors import (
    Conflict,
    Exists,
    Invalid,
    NotFound,
    StratalogError,
    Trimmed,
    Unavailable,
    Unknown,
)
from stratalog.objectlog import Limits
from stratalog.objectlog.holds import Cursor, CursorStore, read_pin
from stratalog.objectlog.read import LogReader
from stratalog.objectlog.tree import Window
from stratalog.pipeline.read.options import StreamOptions
from stratalog.pipeline.read.pinned_plan import Hold, Planned, plan_log
from stratalog.pipeline.read.splits import Part
from stratalog.store import open_store

POLL_S_MIN = 0.05
POLL_S_MAX = 0.5
CURSOR_ATTEMPTS_MAX = 8
CURSOR_PAUSE_S = 0.5

logger = logging.getLogger(__name__)


class LogStream:
    """One streaming query's view of one log."""

    def __init__(self, options: StreamOptions, reader: LogReader) -> None:
        self._options = options
        self._reader = reader
        self._start: int | None = None
        self._stops_at: int | None = None
        self._pause_s: float | None = None
        """How long to wait before the next look. None if the last one found something."""

        self._cursor: Cursor | None = None
        self._held: deque[tuple[int, Planned]] = deque()
        self._released: deque[str] = deque()
        self._logged_lost: int | None = None

    @classmethod
    async def open(cls, options: StreamOptions) -> LogStream:
        return cls(options, await LogReader.open(options.url))

    @property
    def tail(self) -> int:
        """The end of the log as far as it is known."""
        return self._reader.tail

    async def start(self) -> int:
        """Where a new query begins. Its cursor is there from now on."""
        if self._start is None:
            self._start = await self._placed_start()
        return self._start

    async def stop_at_tail(self) -> None:
        """Let what is appended from now on be somebody else's."""
        await self._reader.refresh()
        self._stops_at = self.tail

    async def upto(self, start: int, limits: Limits) -> int:
        """Where the batch that begins at ``start`` ends. ``start`` itself if there is nothing.

        At least one record, or one fragment, is always let in.
        """
        await self.done(start)
        await self._look()
        self._check_end(start)
        low = self._readable(start)
        limit = self.tail if self._stops_at is None else min(self._stops_at, self.tail)
        if limit <= low:
            self._pause_s = self._pause_s or POLL_S_MIN
            return max(start, limit)
        self._pause_s = None
        if limits.max_records is not None:
            limit = min(limit, low + limits.max_records)
        if limits.max_bytes is not None or limits.max_files is not None:
            rest = replace(limits, max_records=None, to_offset=limit)
            fragments = await self._reader.scan(low, limits=rest)
            limit = min(limit, fragments[-1].limit.offset)
        return limit

    async def plan(self, start: int, end: int) -> tuple[Part, ...]:
        """The fragments of a batch, held until it is done."""
        if end <= start:
            return ()
        if self.tail < end:
            await self._reader.refresh()
        self._check_end(end)
        await self._move_cursor(start)
        low = self._readable(start)
        while low < end:
            hold = await self._hold(low)
            try:
                planned = await plan_log(
                    self._options.url, Window(low, end), hold, required_from=low
                )
            except Trimmed:
                await self._reader.refresh()
                low = self._readable(start)
                continue
            self._held.append((end, planned))
            return planned.parts
        return ()

    async def done(self, end: int) -> None:
        """Everything before ``end`` has been processed, and its results are safe."""
        while self._held and self._held[0][0] <= end:
            _, planned = self._held.popleft()
            await planned.release()
            self._released.extend(pin.name for pin in planned.pins)
        await self._move_cursor(end)

    async def close(self) -> None:
        """Release what is held. The cursor stays where it is."""
        while self._held:
            await self._held.popleft()[1].release()
        await self._reader.close()

    async def _placed_start(self) -> int:
        attempts = 0
        while True:
            attempts += 1
            start = await self._find_start()
            if self._options.cursor is None:
                return start
            try:
                await self._place_cursor(self._options.cursor, start)
                return start
            except (Trimmed, Conflict):  # a collection is under way
                if attempts == CURSOR_ATTEMPTS_MAX:
                    raise
                await asyncio.sleep(CURSOR_PAUSE_S)

    async def _find_start(self) -> int:
        options, reader = self._options, self._reader
        await reader.refresh()
        if options.starting_latest:
            return reader.tail
        if options.starting_us is not None:
            return await self._first_at(options.starting_us)
        if options.starting_offset is None:
            return reader.first_offset
        if options.starting_offset > reader.tail:
            raise Invalid(
                f"startingOffset is {options.starting_offset}, but the log ends at {reader.tail}",
                hint='Use "latest" to begin with the next record.',
                expected=options.starting_offset,
                actual=reader.tail,
            )
        return self._readable(options.starting_offset)

    async def _first_at(self, time_us: int) -> int:
        """The first record that was appended at or after a time, or the next to be appended."""
        batches = self._reader.batches(self._reader.first_offset, from_timestamp_us=time_us)
        try:
            async for batch in batches:
                found: int = batch.column(0)[0].as_py()
                return found
            return self._reader.tail
        finally:
            await batches.aclose()

    async def _look(self) -> None:
        """Load the manifest; a little later each time if nothing was new the last time."""
        if self._pause_s is not None and self._stops_at is None:
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(1.5 * self._pause_s, POLL_S_MAX)
        await self._reader.refresh()

    def _readable(self, start: int) -> int:
        """Where reading can begin: at ``start``, or later if loss of data was allowed."""
        first = self._reader.first_offset
        if start >= first:
            return start
        lost = f"records {start} to {first - 1} of {self._options.url} were collected"
        if self._options.fail_on_data_loss:
            raise Trimmed(
                f"{lost} before this query had read them",
                first_offset=first,
                hint=f'Set failOnDataLoss to "false" to go on at offset {first}, or begin anew '
                "with another checkpoint. With the option cursor collection waits for the query.",
            )
        if self._logged_lost != first:
            logger.warning("%s before this query had read them; it goes on at %d", lost, first)
            self._logged_lost = first
        return first

    def _check_end(self, offset: int) -> None:
        """Refuse an offset that the log has not reached: it is another log than before."""
        if offset > self.tail:
            raise Invalid(
                f"the query is at offset {offset}, but the log at {self._options.url} ends at "
                f"{self.tail}",
                hint="Was the log created anew? Then begin with another checkpoint.",
                expected=offset,
                actual=self.tail,
            )

    # Holding

    async def _hold(self, start: int) -> Hold | None:
        """The pin of a batch. None is needed if the cursor is known to hold it."""
        if self._cursor is None and self._options.cursor is not None:
            with contextlib.suppress(StratalogError):
                self._cursor = await CursorStore(self._options.url).load(self._options.cursor)
        if self._options.pin_s is None or (
            self._cursor is not None and self._cursor.offset <= start
        ):
            return None
        return Hold.lasting(self._options.pin_s, await self._free_name())

    async def _free_name(self) -> str | None:
        """The name of an earlier pin that was cleared since, so that they do not pile up."""
        if not self._released:
            return None
        try:
            pin = await read_pin(open_store(self._options.url), self._released[0])
        except StratalogError:
            return None
        return self._released.popleft() if pin.value.is_cleared else None

    async def _place_cursor(self, name: str, offset: int) -> None:
        cursors = CursorStore(self._options.url)
        try:
            self._cursor = await cursors.create(name, offset)
        except Exists:
            self._cursor = await (await cursors.load(name)).move(offset)

    async def _move_cursor(self, end: int) -> None:
        """Let the cursor pass what is done. It does not go back, and it is not worth a query."""
        name = self._options.cursor
        if name is None or (self._cursor is not None and self._cursor.offset >= end):
            return
        try:
            await self._pass(name, end)
        except (Conflict, Exists, Trimmed, Unavailable, Unknown) as error:
            self._cursor = None
            logger.warning("the cursor %r stays where it is for now: %s", name, error)

    async def _pass(self, name: str, end: int) -> None:
        try:
            cursor = self._cursor or await CursorStore(self._options.url).load(name)
            self._cursor = await cursor.move(end) if cursor.offset < end else cursor
        except NotFound:  # of a query that had none so far, or somebody has deleted it
            await self._place_cursor(name, end)
