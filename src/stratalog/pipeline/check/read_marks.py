"""The marks of all servers of a herd, read as a roll-up does, without changing anything."""

from collections.abc import Iterable
from dataclasses import dataclass

from stratalog.errors import NotFound, StratalogError
from stratalog.herd import ROLLUP_CURSOR, SIDES, Mark, dirty_store, servers
from stratalog.objectlog.holds import CursorStore
from stratalog.objectlog.read import LogReader
from stratalog.objectlog.stored import body_views
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Store


@dataclass(frozen=True, slots=True)
class Marks:
    """Up to where each log is marked, in any dirty log."""

    ends: dict[str, int]
    count: int
    unread: tuple[str, ...]
    """The dirty logs that could not be read, and why."""

    def cover(self, log_id: str, tail: int) -> bool:
        """Whether a roll-up will find all records of a log before ``tail``."""
        return self.ends.get(log_id, 0) >= tail


async def read_marks(root: Store, runtime: Runtime = DEFAULT_RUNTIME) -> Marks:
    """Every mark that no roll-up is done with."""
    ends: dict[str, int] = {}
    count, unread = 0, []
    async for server in servers(root):
        for side in SIDES:
            try:
                for mark in await _marks_of(dirty_store(root, server, side), runtime):
                    ends[mark.log_id] = max(ends.get(mark.log_id, 0), mark.end)
                    count += 1
            except NotFound:
                continue
            except StratalogError as error:
                unread.append(f"{server} ({side}): {error}")
    return Marks(ends, count, tuple(unread))


async def _marks_of(store: Store, runtime: Runtime) -> Iterable[Mark]:
    async with LogReader.open(store, runtime=runtime) as reader:
        try:
            cursor = await CursorStore(store, runtime=runtime).load(ROLLUP_CURSOR)
            first = max(cursor.offset, reader.first_offset)
        except NotFound:
            first = reader.first_offset
        return [
            Mark.from_bytes(body)
            async for batch in reader.batches(first, reader.tail)
            for body in body_views(batch.column(2))
        ]
