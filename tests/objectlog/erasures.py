"""Erasing from small logs, and looking whether everything of it is gone."""

from __future__ import annotations

from typing import Any

import stratalog as sl
from objectlog.whole_log import check_whole_log, orphans
from stratalog import Certificate, IndexSet
from stratalog.objectlog.stored.linked_mark import read_mark
from stratalog.store import Store, StoreLike
from stratalog.testing import Row

AT_ONCE = sl.CompactOptions(interval_s=0.0)
IN_PROCESS = sl.ScrubOptions(processes=0)


async def written(url: StoreLike, fragments: int = 5, records: int = 10) -> Store:
    store = sl.open_store(url)
    async with sl.LogWriter.open(store, create=True) as log:
        for number in range(fragments):
            await log.append_many([b"%d-%d" % (number, each) for each in range(records)])
    return store


async def erased(store: StoreLike, *offsets: int, **options: Any) -> Certificate:
    found = await sl.erase(store, IndexSet.of(offsets), options=AT_ONCE, **options)
    assert found is not None
    return found


async def check_erased(store: Store, before: list[Row], doomed: IndexSet) -> None:
    """All other records are there, bit by bit; nothing of these is stored anywhere."""
    rows = await check_whole_log(store, compacted=True)
    assert rows == [row for row in before if row[0] not in doomed]
    report = await sl.scrub(store, options=IN_PROCESS)
    assert report.clean, report.damages
    bodies = {body for offset, _, body in before if offset in doomed}
    async for row in store.list("log/"):
        data = (await store.get(row.path)).data
        mark = await read_mark(store, row.path, row.size)  # its digits may be those of a body
        data = data.replace(mark.text.encode(), b"") if mark else data
        assert not any(body in data for body in bodies if len(body) > 2), row.path
    assert not {path for path in await orphans(store) if path.startswith(("log/", "snapshot/"))}
