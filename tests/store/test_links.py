"""The directory store follows no link: not to read, not to list, not to write, not to delete."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import stratalog as sl
from objectlog.whole_log import bodies_of
from stratalog.errors import Conflict, Denied
from stratalog.store import DirectoryStore
from stratalog.store.directory import no_links

Operation = Callable[[DirectoryStore], Coroutine[Any, Any, object]]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory that is not the store's, with a file that must stay as it is."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "x").write_bytes(b"precious")
    return place


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "store"
    (place / "log").mkdir(parents=True)
    return place


async def listed(store: DirectoryStore, prefix: str = "") -> list[str]:
    return [row.path async for row in store.list(prefix)]


OPERATIONS: dict[str, Operation] = {
    "get": lambda store: store.get("log/way/x"),
    "get_range": lambda store: store.get_range("log/way/x", 0, 1),
    "head": lambda store: store.head("log/way/x"),
    "list": listed,
    "list below": lambda store: listed(store, "log/way/"),
    "list a part": lambda store: listed(store, "log/w"),
    "put_if_absent": lambda store: store.put_if_absent("log/way/new", b"mine"),
    "put_if_absent deeper": lambda store: store.put_if_absent("log/way/deep/er", b"mine"),
    "put_if_match": lambda store: store.put_if_match("log/way/x", b"mine", "etag"),
    "delete_many": lambda store: store.delete_many(["log/way/x"]),
}


SINGLE = ("get", "get_range", "head", "list", "put_if_absent", "put_if_match")


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_linked_directory_is_refused_by_name(name: str, root: Path, outside: Path) -> None:
    (root / "log" / "way").symlink_to(outside)
    with pytest.raises(Denied, match=r"way.* is a symbolic link") as caught:
        asyncio.run(OPERATIONS[name](DirectoryStore(root)))
    assert "mount" in caught.value.hint
    assert {each.name: each.read_bytes() for each in outside.iterdir()} == {"x": b"precious"}


@pytest.mark.parametrize(
    "name", ["get", "get_range", "head", "list", "put_if_absent", "put_if_match"]
)
@pytest.mark.parametrize("dangling", [False, True])
def test_a_linked_file_is_refused_by_name(
    name: str, dangling: bool, root: Path, outside: Path
) -> None:
    (root / "log" / "way").mkdir()
    (root / "log" / "way" / "x").symlink_to(outside / ("nothing" if dangling else "x"))
    operations: dict[str, Operation] = dict(OPERATIONS)
    operations["put_if_absent"] = lambda store: store.put_if_absent("log/way/x", b"")
    with pytest.raises(Denied, match=r"x.* is a symbolic link"):
        asyncio.run(operations[name](DirectoryStore(root)))
    assert (outside / "x").read_bytes() == b"precious"
    assert not (outside / "nothing").exists()


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_older_kernel_walks_to_the_same_end(
    name: str, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(no_links, "_syscall", None)
    test_a_linked_directory_is_refused_by_name(name, root, outside)
    (root / "log" / "way").unlink()
    outside.rename(root / "log" / "way")
    with contextlib.suppress(Conflict):
        asyncio.run(OPERATIONS[name](DirectoryStore(root)))


def test_deleting_a_linked_file_removes_the_link_only(root: Path, outside: Path) -> None:
    (root / "log" / "x").symlink_to(outside / "x")
    asyncio.run(DirectoryStore(root).delete_many(["log/x"]))
    assert not os.path.lexists(root / "log" / "x")
    assert (outside / "x").read_bytes() == b"precious"


def test_a_linked_stage_is_neither_written_to_nor_cleared(root: Path, outside: Path) -> None:
    os.utime(outside / "x", (0, 0))
    (root / ".stage").symlink_to(outside)
    with pytest.raises(Denied, match="symbolic link"):
        asyncio.run(DirectoryStore(root).put_if_absent("log/x", b"mine"))
    assert [each.name for each in outside.iterdir()] == ["x"]


def test_the_root_itself_may_be_a_link_and_is_resolved_once(root: Path, tmp_path: Path) -> None:
    entrance = tmp_path / "entrance"
    entrance.symlink_to(root)
    store = DirectoryStore(entrance)
    other = tmp_path / "other"
    other.mkdir()

    async def main() -> None:
        await store.put_if_absent("log/x", b"1")
        entrance.unlink()
        entrance.symlink_to(other)
        assert (await store.get("log/x")).data == b"1"
        await store.delete_many(["log/x"])

    asyncio.run(main())
    assert store.url == entrance.as_uri()
    assert list(other.iterdir()) == []


def test_hidden_names_may_be_links(root: Path, outside: Path) -> None:
    (root / ".mine").symlink_to(outside)
    assert asyncio.run(listed(DirectoryStore(root))) == []


def test_neither_sweep_nor_destroy_leaves_the_log_through_a_link(
    tmp_path: Path, outside: Path
) -> None:
    """The link has the name of a bucket, and what it leads to the name of a fragment."""

    async def main() -> None:
        place = tmp_path / "a-log"
        async with sl.LogWriter.open(place, create=True) as log:
            await log.append(b"one")
        writer = outside / f"Writer={'a' * 12}-1"
        writer.mkdir()
        victim = writer / f"FragmentSeqNo={4096:016x}.parquet"
        victim.write_bytes(b"precious")
        link = place / "log" / f"Bucket={4096:016x}"
        link.symlink_to(outside)
        for work in (sl.sweep(place), sl.sweep(place, older_manifest=True), sl.destroy(place)):
            with pytest.raises((Denied, Conflict), match="symbolic link"):
                await work
        assert victim.read_bytes() == b"precious"
        assert await bodies_of(str(place)) == [b"one"]
        link.unlink()
        await sl.destroy(place)
        assert victim.read_bytes() == b"precious"

    asyncio.run(main())


def test_a_linked_cursor_is_not_passed_over(tmp_path: Path, outside: Path) -> None:
    """If the listing left it out, a collection would delete what it holds."""

    async def main() -> None:
        place = tmp_path / "a-log"
        async with sl.LogWriter.open(place, create=True) as log:
            for number in range(4):
                await log.append(b"%d" % number)
        cursors = sl.CursorStore(place)
        await cursors.create("held", 1)
        await cursors.create("later", 4)
        (place / "cursor" / "held.json").rename(outside / "held.json")
        (place / "cursor" / "held.json").symlink_to(outside / "held.json")
        with pytest.raises(Denied, match=r"held\.json"):
            await sl.collect(place, options=sl.CollectorOptions(interval_s=0.0))
        assert len(await bodies_of(str(place))) == 4

    asyncio.run(main())
