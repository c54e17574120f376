"""Processes that share a directory store, and die on it. Run as a script, with a mode and a root.

It forks instead of starting interpreters, so that hundreds of processes can be killed in seconds.
It imports nothing that has threads before it forks.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from stratalog.errors import Conflict
from stratalog.store.directory import directory_store as directory
from stratalog.store.directory import durable
from stratalog.store.directory.directory_store import DirectoryStore
from stratalog.store.directory.durable import opened_durable

COUNTER = "shared/counter"


def in_child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


async def increment(store: DirectoryStore, name: str) -> None:
    while True:
        blob = await store.get(COUNTER)
        counts = json.loads(blob.data)
        counts[name] = counts.get(name, 0) + 1
        try:
            await store.put_if_match(COUNTER, json.dumps(counts).encode(), blob.etag)
        except Conflict:
            continue
        return


def count_up(roots: list[str], processes: int, increments: int) -> None:
    """Every process increments; they take the given roots of the same files by turns."""

    def work(index: int) -> None:
        async def main() -> None:
            root, _, inner = roots[index % len(roots)].partition("//")
            store = _Inner(DirectoryStore(f"{root}/{inner}"), inner)
            for _ in range(increments):
                await increment(store, f"process-{index}")

        asyncio.run(main())

    asyncio.run(DirectoryStore(roots[0].partition("//")[0]).put_if_absent(COUNTER, b"{}"))
    children = [in_child(lambda index=index: work(index)) for index in range(processes)]  # type: ignore[misc]
    failed = [os.waitpid(pid, 0)[1] for pid in children]
    assert failed == [0] * processes, failed


class _Inner(DirectoryStore):
    """The same object through a root further down."""

    def __init__(self, store: DirectoryStore, inner: str) -> None:
        super().__init__(store._root)
        self._cut = len(inner) + 1 if inner else 0

    def _place(self, path: str) -> tuple[str, str]:
        return super()._place(path[self._cut :])


def storm(root: str, seconds: float) -> None:
    """Kill writers all the time. What each was told is written down before it goes on."""
    acknowledged = Path(root + ".acknowledged")
    asyncio.run(DirectoryStore(root).put_if_absent(COUNTER, b"{}"))
    log = os.open(acknowledged, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def work(name: str) -> None:
        async def main() -> None:
            store = DirectoryStore(root)
            number = 0
            while True:
                path = f"made/{name}/{number}/object"
                await store.put_if_absent(path, path.encode() * 50)
                os.write(log, f"made {path}\n".encode())
                await increment(store, name)
                os.write(log, f"count {name}\n".encode())
                number += 1

        asyncio.run(main())

    running: list[int] = []
    born = kills = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        while len(running) < 4:
            running.append(in_child(lambda name=f"w{born}": work(name)))  # type: ignore[misc]
            born += 1
        time.sleep(random.uniform(0.0, 0.02))
        victim = running.pop(random.randrange(len(running)))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        kills += 1
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    print(json.dumps({"kills": kills}))


STEPS = ("open", "write", "fsync", "link", "rename", "unlink", "mkdir", "fchmod", "close")


def die_at(step: int) -> None:
    """Leave the process, without any clean-up, before its n-th step in the file system."""
    left = [step]

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **kwargs: Any) -> Any:
            if left[0] == 0:
                os._exit(9)
            left[0] -= 1
            return call(*args, **kwargs)

        return instead

    for name in STEPS:
        setattr(os, name, dying(getattr(os, name)))


def crash_everywhere(root: str) -> None:
    """Crash before every step of a create and of a replace; look at what is left each time."""
    found = {operation: _crash_at_each_step(root, operation) for operation in ("create", "replace")}
    print(json.dumps(found))


def _crash_at_each_step(root: str, operation: str) -> list[str]:
    states: list[str] = []
    while True:
        place = f"{root}/{operation}-{len(states)}"
        survived = _crash(len(states), place, operation)
        states.append(_state(place))
        _must_work(place)
        if survived:
            return states


def _crash(step: int, place: str, operation: str) -> bool:
    store = DirectoryStore(place)
    etag = ""
    if operation == "replace":
        etag = asyncio.run(store.put_if_absent("a/b/x", b"old"))

    def child() -> None:
        die_at(step)
        if operation == "replace":
            store._replace("a/b/x", b"new", etag)
        else:
            store._create("a/b/x", b"new")

    return os.waitpid(in_child(child), 0)[1] == 0


def _state(place: str) -> str:
    """What a reader finds, and whether it had to sync that first."""
    store = DirectoryStore(place)
    synced: list[str] = []

    def sync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        durable.sync(fd)

    async def look() -> str:
        rows = [row.path async for row in store.list()]
        assert rows in ([], ["a/b/x"]), rows
        synced.clear()
        return (await store.get("a/b/x")).data.decode() if rows else "nothing"

    with mock.patch.object(directory, "sync", sync):
        found = asyncio.run(look())
    assert synced in ([], [f"{place}/a/b/x", f"{place}/a/b"]), synced
    return f"{found}, synced" if synced else found


def _must_work(place: str) -> None:
    """Whatever a crash left, the next writer goes on, and settles the directories."""

    async def use() -> None:
        store = DirectoryStore(place)
        await store.put_if_absent("a/b/y", b"after")
        assert (await store.get("a/b/y")).data == b"after"

    asyncio.run(use())
    for below in ("", "a", "a/b", ".stage"):
        path = os.path.join(place, below).rstrip("/")
        assert not os.stat(path).st_mode & 0o1000, f"{path} is not settled"
        with opened_durable(path, place):
            pass


def main() -> NoReturn:
    mode, root, *rest = sys.argv[1:]
    if mode == "count":
        count_up(rest, processes=8, increments=40)
    elif mode == "storm":
        storm(root, float(rest[0]))
    elif mode == "crash":
        crash_everywhere(root)
    sys.exit(0)


if __name__ == "__main__":
    main()
