"""What is particular to the directory store: processes, crashes, file systems."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import multiprocessing
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stratalog.errors import Conflict, Denied, Exists, Invalid, NotFound, Unavailable, Unknown
from stratalog.store import DirectoryStore, MemoryStore, UnsafeFileSystemWarning
from stratalog.store.directory import directory_store as directory_module
from stratalog.store.directory import durable, mounts
from stratalog.store.directory import staged_file as staged_module

SCRIPT = Path(__file__).with_name("directory_processes.py")


def run_processes(mode: str, root: Path, *arguments: str) -> str:
    finished = subprocess.run(
        [sys.executable, str(SCRIPT), mode, str(root), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def counts_in(root: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((root / "shared" / "counter").read_bytes())
    return found


def test_increments_of_eight_processes_are_all_kept(tmp_path: Path) -> None:
    root = tmp_path / "store"
    run_processes("count", root, str(root))
    assert counts_in(root) == {f"process-{index}": 40 for index in range(8)}


def test_stores_at_different_roots_of_the_same_files_exclude_each_other(tmp_path: Path) -> None:
    root = tmp_path / "store"
    run_processes("count", root, str(root), f"{root}//shared")
    assert counts_in(root) == {f"process-{index}": 40 for index in range(8)}


def test_nothing_acknowledged_is_lost_when_writers_are_killed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    kills = json.loads(run_processes("storm", root, "3"))["kills"]
    assert kills >= 20
    lines = Path(f"{root}.acknowledged").read_text().splitlines()
    made = [line.split()[1] for line in lines if line.startswith("made ")]
    acknowledged = Counter(line.split()[1] for line in lines if line.startswith("count "))
    assert made
    for path in made:
        assert (root / path).read_bytes() == path.encode() * 50
    stored = counts_in(root)
    for name, count in acknowledged.items():
        assert count <= stored[name] <= count + 1, "told at most one less than was done"


def test_a_crash_at_any_step_leaves_the_old_or_the_new_and_a_store_that_works(
    tmp_path: Path,
) -> None:
    found = json.loads(run_processes("crash", tmp_path))
    for operation, before in (("create", "nothing"), ("replace", "old")):
        states = found[operation]
        assert len(states) > 8
        # The sync of the directory and the removal of the staged name are two steps.
        doubtful = states.index("new, synced")
        assert states[doubtful : doubtful + 2] == ["new, synced"] * 2, "readers settle a doubt"
        assert set(states[:doubtful]) == {before}
        assert set(states[doubtful + 2 :]) == {"new"}


def test_an_acknowledged_create_has_synced_file_directory_and_new_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)
    asyncio.run(store.put_if_absent("first", b""))
    steps: list[str] = []
    real_sync, real_link = durable.sync, os.link

    def sync(fd: int) -> None:
        synced = Path(os.readlink(f"/proc/self/fd/{fd}"))
        steps.append("staged" if synced.parent.name == ".stage" else synced.name)
        real_sync(fd)

    def link(*args: object, **kwargs: object) -> None:
        steps.append("link")
        real_link(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(durable, "sync", sync)
    monkeypatch.setattr(directory_module, "sync", sync)
    monkeypatch.setattr(os, "link", link)
    asyncio.run(store.put_if_absent("a/b/x", b"bytes"))
    assert steps == ["staged", tmp_path.name, "a", "link", "b"]
    steps.clear()
    asyncio.run(store.put_if_absent("a/b/y", b"bytes"))
    assert steps == ["staged", "link", "b"]


def test_a_reader_waits_for_a_rename_that_is_not_durable_yet(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)

    async def scenario() -> None:
        await store.put_if_absent("x", b"1")
        with durable.opened(str(tmp_path)) as fd:
            with durable.locked(fd, exclusive=True):
                reading = asyncio.create_task(store.get("x"))
                await asyncio.sleep(0.03)
                assert not reading.done()
            assert (await reading).data == b"1"

    asyncio.run(scenario())


def test_waiting_for_a_lock_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "LOCK_WAIT_S_MAX", 0.01)
    store = DirectoryStore(tmp_path)

    async def scenario() -> None:
        await store.put_if_absent("x", b"1")
        with (
            durable.opened(str(tmp_path)) as fd,
            durable.locked(fd, exclusive=True),
            pytest.raises(Unavailable, match="lock"),
        ):
            await store.get("x")

    asyncio.run(scenario())


def _hold_open(ready: str) -> None:
    Path(ready).touch()
    time.sleep(60)


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    with durable.opened(str(tmp_path)) as fd:
        with durable.locked(fd, exclusive=True):
            child = multiprocessing.get_context("fork").Process(
                target=_hold_open, args=(str(tmp_path / "ready"),)
            )
            child.start()
        try:
            with durable.opened(str(tmp_path)) as other, durable.locked(other, exclusive=True):
                pass
        finally:
            child.kill()
            child.join()


def test_reading_makes_nothing(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "absent" / "root")

    async def scenario() -> None:
        with pytest.raises(NotFound):
            await store.get("x")
        with pytest.raises(NotFound):
            await store.head("x")
        with pytest.raises(Conflict):
            await store.put_if_match("x", b"", "etag")
        assert [row async for row in store.list()] == []
        await store.delete_many(["x", "a/b"])

    asyncio.run(scenario())
    assert os.listdir(tmp_path) == []


def test_old_left_overs_go_at_the_first_write_and_never_at_a_read(tmp_path: Path) -> None:
    asyncio.run(DirectoryStore(tmp_path).put_if_absent("x", b"1"))
    old, young = tmp_path / ".stage" / "old", tmp_path / ".stage" / "young"
    for left_over in (old, young):
        left_over.write_bytes(b"half")
    os.utime(old, (time.time() - 3700, time.time() - 3700))
    store = DirectoryStore(tmp_path)
    assert asyncio.run(store.get("x")).data == b"1"
    assert old.exists()
    asyncio.run(store.put_if_absent("y", b"1"))
    assert not old.exists()
    assert young.exists()


def test_a_staged_file_that_was_swept_is_staged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = durable.write_durably
    swept: list[str] = []

    def write(path: str, data: bytes) -> None:
        real(path, data)
        if not swept:
            swept.append(path)
            os.unlink(path)

    monkeypatch.setattr(staged_module, "write_durably", write)
    asyncio.run(DirectoryStore(tmp_path).put_if_absent("a/x", b"1"))
    assert (tmp_path / "a" / "x").read_bytes() == b"1"
    assert swept
    assert os.listdir(tmp_path / ".stage") == []


def test_puts_and_deletes_that_remove_each_others_directories_both_succeed(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)

    async def churn(name: str) -> None:
        for _ in range(30):
            await store.put_if_absent(f"deep/er/{name}", b"1")
            await store.delete_many([f"deep/er/{name}"])

    async def scenario() -> None:
        await asyncio.gather(*(churn(f"n{index}") for index in range(6)))

    asyncio.run(scenario())
    assert os.listdir(tmp_path) == [".stage"]


def test_a_deletion_that_could_not_be_synced_is_synced_when_it_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)
    asyncio.run(store.put_if_absent("a/x", b"1"))
    asyncio.run(store.put_if_absent("a/y", b"1"))
    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync", failing(errno.EIO))
        for _ in range(2):
            with pytest.raises(Unavailable):
                asyncio.run(store.delete_many(["a/x"]))
    asyncio.run(store.delete_many(["a/x"]))


def test_deleting_removes_emptied_directories_but_never_a_neighbour(tmp_path: Path) -> None:
    store, inner = DirectoryStore(tmp_path), DirectoryStore(tmp_path / "log")

    async def scenario() -> None:
        await inner.put_if_absent("a/b/c", b"1")
        await store.put_if_absent("other/x", b"1")
        await store.delete_many(["log/a/b/c"])

    asyncio.run(scenario())
    assert sorted(os.listdir(tmp_path)) == [".stage", "other"]
    asyncio.run(inner.put_if_absent("a", b"again"))
    assert (tmp_path / "log" / "a").read_bytes() == b"again"


def test_an_object_cannot_be_a_directory_too(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)

    async def scenario() -> None:
        await store.put_if_absent("a/b", b"1")
        with pytest.raises(Invalid):
            await store.put_if_absent("a", b"1")
        with pytest.raises(Invalid):
            await store.put_if_absent("a/b/c", b"1")
        with pytest.raises(Conflict):
            await store.put_if_match("a", b"1", "etag")
        with pytest.raises(Invalid):
            await store.put_if_absent("x" * 300, b"1")
        with pytest.raises(Exists):
            await store.put_if_absent("a/b", b"1")

    asyncio.run(scenario())
    assert os.listdir(tmp_path / ".stage") == []


@pytest.mark.parametrize("below", ["", "logs/orders"])
def test_a_root_that_is_a_file_is_told(tmp_path: Path, below: str) -> None:
    (tmp_path / "a-file").write_bytes(b"mine")
    store = DirectoryStore(tmp_path / "a-file" / below)
    with pytest.raises(Invalid, match=r"a-file is a file, not a directory") as caught:
        asyncio.run(store.put_if_absent("a", b"1"))
    assert "another place" in caught.value.hint
    assert (tmp_path / "a-file").read_bytes() == b"mine"


def failing(number: int, only: Callable[..., bool] = lambda *_: True) -> Callable[..., None]:
    def fail(*args: object, **kwargs: object) -> None:
        if only(*args):
            raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, Unavailable),
        (errno.EDQUOT, Unavailable),
        (errno.EIO, Unavailable),
        (errno.EROFS, Denied),
        (errno.EACCES, Denied),
        (errno.EPERM, Denied),
    ],
)
def test_a_failure_before_the_link_did_not_happen_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    store = DirectoryStore(tmp_path)
    etag = asyncio.run(store.put_if_absent("x", b"1"))
    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync", failing(number))
        with pytest.raises(kind) as caught:
            asyncio.run(store.put_if_absent("y", b"2"))
        assert getattr(caught.value, "hint", "")
        with pytest.raises(kind):
            asyncio.run(store.put_if_match("x", b"2", etag))
    assert sorted(os.listdir(tmp_path)) == [".stage", "x"]
    assert (tmp_path / "x").read_bytes() == b"1"
    assert os.listdir(tmp_path / ".stage") == []


def test_a_failure_to_sync_the_directory_leaves_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)
    etag = asyncio.run(store.put_if_absent("x", b"1"))
    monkeypatch.setattr(directory_module, "sync", failing(errno.EIO))
    with pytest.raises(Unknown):
        asyncio.run(store.put_if_absent("y", b"2"))
    with pytest.raises(Unknown):
        asyncio.run(store.put_if_match("x", b"2", etag))


def names_synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what the store syncs from now on, but for staged bytes."""
    synced: list[str] = []

    def sync(fd: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        durable.sync(fd)

    monkeypatch.setattr(directory_module, "sync", sync)
    return synced


async def listed(store: DirectoryStore) -> list[str]:
    return [row.path async for row in store.list()]


@pytest.mark.parametrize("operation", ["create", "replace"])
def test_what_could_not_be_synced_is_not_read_before_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    store, other = DirectoryStore(tmp_path), DirectoryStore(tmp_path / "a")

    async def fail_to_write() -> None:
        if operation == "create":
            await store.put_if_absent("a/x", b"new")
        else:
            await store.put_if_match("a/x", b"new", etag)

    asyncio.run(store.put_if_absent("a/neighbour", b"1"))
    etag = asyncio.run(store.put_if_absent("a/x", b"old")) if operation == "replace" else ""
    with monkeypatch.context() as patch:
        patch.setattr(directory_module, "sync", failing(errno.EIO))
        with pytest.raises(Unknown):
            asyncio.run(fail_to_write())
        for read in (store.get("a/x"), store.head("a/x"), other.get("x"), other.head("x")):
            with pytest.raises(Unavailable, match="not known to be durable"):
                asyncio.run(read)
        for anybody in (store, other):
            with pytest.raises(Unavailable, match="not known to be durable"):
                asyncio.run(listed(anybody))
        assert asyncio.run(store.get("a/neighbour")).data == b"1"
    synced = names_synced(monkeypatch)
    assert asyncio.run(other.get("x")).data == b"new"
    assert synced == ["x", "a"]
    synced.clear()
    assert asyncio.run(listed(store)) == ["a/neighbour", "a/x"]
    assert synced == ["a"]


def test_a_replacement_that_is_durable_ends_the_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(directory_module, "sync", failing(errno.EIO))
        with pytest.raises(Unknown):
            asyncio.run(store.put_if_absent("x", b"1"))
    blob = asyncio.run(store.get("x"))
    asyncio.run(store.put_if_match("x", b"2", blob.etag))
    synced = names_synced(monkeypatch)
    assert asyncio.run(store.get("x")).data == b"2"
    assert synced == []


def test_writing_and_reading_in_peace_leaves_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)

    async def scenario() -> None:
        etag = await store.put_if_absent("a/x", b"1")
        await store.put_if_match("a/x", b"2", etag)
        with pytest.raises(Exists):
            await store.put_if_absent("a/x", b"3")
        with pytest.raises(Conflict):
            await store.put_if_match("a/x", b"3", etag)
        assert os.listdir(tmp_path / ".stage") == []
        synced = names_synced(monkeypatch)
        await store.get("a/x")
        assert await listed(store) == ["a/x"]
        assert synced == []

    asyncio.run(scenario())


def test_a_mark_of_doubt_is_not_swept_before_its_object_is_gone(tmp_path: Path) -> None:
    asyncio.run(DirectoryStore(tmp_path).put_if_absent("x", b"1"))
    mark, spare = tmp_path / ".stage" / "mark", tmp_path / ".stage" / "dead-spare"
    os.link(tmp_path / "x", mark)
    os.link(tmp_path / "x", spare)
    os.utime(mark, (time.time() - 3700, time.time() - 3700))
    asyncio.run(DirectoryStore(tmp_path).put_if_absent("y", b"1"))
    assert os.listdir(tmp_path / ".stage") == ["mark"]
    asyncio.run(DirectoryStore(tmp_path).delete_many(["x"]))
    asyncio.run(DirectoryStore(tmp_path).put_if_absent("z", b"1"))
    assert os.listdir(tmp_path / ".stage") == []


@pytest.mark.parametrize(
    ("kind", "unsafe"),
    [
        ("nfs4", True),
        ("cifs", True),
        ("fuse.sshfs", True),
        ("fuse.gcsfuse", True),
        ("9p", True),
        ("ext4", False),
        ("xfs", False),
        ("tmpfs", False),
        ("fuse.mergerfs", False),
    ],
)
def test_a_network_file_system_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, unsafe: bool
) -> None:
    device = os.stat(tmp_path).st_dev
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        f"36 35 {os.major(device)}:{os.minor(device)} / /mnt rw shared:1 - {kind} server:/x rw\n"
    )
    monkeypatch.setattr(mounts, "MOUNTS", str(table))
    mounts._kind_of_device.cache_clear()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            DirectoryStore(tmp_path / "not" / "yet")
            DirectoryStore(tmp_path / "not" / "yet")
        assert [each.category for each in caught] == [UnsafeFileSystemWarning] * unsafe
        assert all(kind in str(each.message) for each in caught)
        assert all(each.filename == __file__ for each in caught)
    finally:
        mounts._kind_of_device.cache_clear()


def test_a_system_without_a_table_of_mounts_is_not_warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "MOUNTS", str(tmp_path / "none"))
    mounts._kind_of_device.cache_clear()
    DirectoryStore(tmp_path)
    mounts._kind_of_device.cache_clear()


def test_windows_is_refused_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(Invalid) as caught:
        DirectoryStore(tmp_path)
    assert "memory://" in caught.value.hint


names = st.text(alphabet="ab-./0=é", min_size=1, max_size=3).filter(
    lambda name: "/" not in name and not name.startswith(".")
)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)


@settings(max_examples=60, deadline=None)
@given(
    objects=st.sets(paths, max_size=12),
    prefix=st.one_of(st.just(""), paths, paths.map(lambda path: path + "/")),
    after=st.one_of(st.just(""), paths),
)
@example(objects={"b"}, prefix="b0", after="")
def test_listings_are_those_of_the_model(
    tmp_path_factory: pytest.TempPathFactory, objects: set[str], prefix: str, after: str
) -> None:
    root = tmp_path_factory.mktemp("model")
    kept = {path for path in objects if not any(other.startswith(f"{path}/") for other in objects)}

    async def scenario() -> None:
        store, model = DirectoryStore(root), MemoryStore()
        for path in kept:
            await store.put_if_absent(path, path.encode())
            await model.put_if_absent(path, path.encode())
        expected = [row async for row in model.list(prefix, after)]
        assert [row async for row in store.list(prefix, after)] == expected

    asyncio.run(scenario())


class TestFilesThatAreNotAsExpected:
    def test_what_is_not_a_file_is_not_an_object(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        os.mkfifo(tmp_path / "pipe")
        for path in ("folder", "pipe"):
            with pytest.raises(NotFound):
                asyncio.run(DirectoryStore(tmp_path).get(path))

    def test_a_large_file_is_read_in_pieces(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(directory_module, "READ_BYTES_MAX", 7)
        store = DirectoryStore(tmp_path)
        data = bytes(range(100))

        async def main() -> None:
            await store.put_if_absent("a", data)
            assert (await store.get("a")).data == data
            assert await store.get_range("a", 3, 50) == data[3:53]

        asyncio.run(main())

    def test_an_empty_file_and_one_that_hides_its_size(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = DirectoryStore(tmp_path)

        async def main() -> None:
            await store.put_if_absent("empty", b"")
            await store.put_if_absent("full", b"bytes")
            assert (await store.get("empty")).data == b""
            opened = store._open
            monkeypatch.setattr(store, "_open", lambda path: (opened(path)[0], 0))
            assert (await store.get("full")).data == b"bytes"

        asyncio.run(main())

    def test_a_file_that_becomes_shorter_is_not_taken_for_whole(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = DirectoryStore(tmp_path)

        async def main() -> None:
            await store.put_if_absent("a", b"bytes")
            opened = store._open
            monkeypatch.setattr(store, "_open", lambda path: (opened(path)[0], 9))
            with pytest.raises(Unavailable, match="shorter"):
                await store.get("a")

        asyncio.run(main())

    def test_no_file_stays_open(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = DirectoryStore(tmp_path)
        asyncio.run(store.put_if_absent("a", b"bytes"))
        (tmp_path / "folder").mkdir()
        before = len(os.listdir("/dev/fd"))
        for path, start in (("a", 0), ("a", 99), ("none", 0), ("folder", 0)):
            with contextlib.suppress(Invalid, NotFound):
                store._read_range(path, start, 3)
        assert len(os.listdir("/dev/fd")) == before
