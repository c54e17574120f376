"""Herds for tests of the jobs: made on a directory, where Spark's workers can see them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import stratalog as sl
from objectlog.whole_log import run
from stratalog.herd.catalogue import Catalogue
from stratalog.herd.names import log_store
from stratalog.objectlog.holds import cursor as cursor_module
from stratalog.runtime import Runtime
from stratalog.store import open_store
from stratalog.store.protocol import Store

KEY = "substring_index(cast(body as string), ' ', 1)"
"""The key of the records below: the first word."""

ALL_THAT_WAITS = sl.RollUpOptions(age_s=0.0)


def root_of(tmp_path: Path) -> str:
    return str(tmp_path / "herd")


def fill(root: str, sizes: Mapping[str, int], *, server: str = "api", fragments: int = 2) -> None:
    """Append so many records to each log, which is made if need be, in a few fragments."""

    async def main() -> None:
        async with sl.Herd.open(root, server=server) as herd:
            for name, count in sizes.items():
                log = await herd.create(name, exist_ok=True)
                for part in range(fragments):
                    bodies = [b"key-%d %d" % (n % 10, part) for n in range(part, count, fragments)]
                    if bodies:
                        await log.append_many(bodies)

    run(main())


def ids_of(root: str) -> dict[str, str]:
    """The ids of all logs by their names."""

    async def main() -> dict[str, str]:
        async with sl.Herd.open(root) as herd:
            return {name: await herd.log(name).id() async for name in herd.names()}

    return run(main())


def store_of(root: str, name: str) -> Store:
    return log_store(open_store(root), ids_of(root)[name])


def new_place(root: str, name: str) -> Store:
    """An entry of the catalogue, and the place of its log, where nothing is yet."""

    async def main() -> Store:
        store = open_store(root)
        entry = await Catalogue(store, Runtime()).add(name, exist_ok=False)
        return log_store(store, entry.id)

    return run(main())


def set_cursor(root: str, name: str, offset: int, cursor: str = "compaction") -> None:
    """Let a cursor be there, moved or new; also one beyond the tail, which only damage leaves."""

    store = store_of(root, name)

    async def main() -> None:
        cursors = sl.CursorStore(store)
        try:
            await (await cursors.load(cursor)).move(offset)
        except sl.errors.NotFound:
            await cursors.create(cursor, offset)

    with patch.object(cursor_module, "_check_reached"):
        run(main())


def drop(root: str, name: str) -> None:
    async def main() -> None:
        async with sl.Herd.open(root) as herd:
            await herd.drop(name)

    run(main())


def paths_below(root: str, prefix: str) -> list[str]:
    async def main() -> list[str]:
        return [row.path async for row in open_store(root).list(prefix)]

    return run(main())


def delete(root: str, *paths: str) -> None:
    run(open_store(root).delete_many(paths))
