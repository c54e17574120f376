"""Notes: a few durable values of the whole node."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segments.disks import SMALL, WatchedFiles, entries, names, run
from stratalog.errors import Closed, Conflict, Corrupt, Full, Invalid
from stratalog.segments import Disk
from stratalog.segments import notes as notes_module
from stratalog.segments.notes import _decoded


def test_they_are_there_when_they_are_durable_and_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            changing = disk.notes.submit({"a/1": b"one", "a/2": b"two", "b": b""})
            assert disk.notes.get("a/1") is None, "not before it is durable"
            await changing
            await disk.notes.submit({"a/1": None, "b": b"changed", "never there": None})
        for _ in range(2):
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert disk.notes.items() == [("a/2", b"two"), ("b", b"changed")]
                assert disk.notes.items("a/") == [("a/2", b"two")]
                assert disk.notes.get("a/1") is None
                assert len(disk.notes) == 2
                await disk.flush()

    run(main())


def test_they_are_no_partition_of_the_user(tmp_path: Path) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            await disk.notes.submit({"a": b"1"})
            assert disk.partitions() == []
            with pytest.raises(Invalid, match="notes"):
                await disk.partition("(notes)")
            await disk.partition("p")
            assert disk.partitions() == ["p"]

    run(main())


def test_later_changes_win_in_the_order_of_the_calls(tmp_path: Path) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            part = await disk.partition("p")
            changes = [disk.notes.submit({"a": b"%d" % at}) for at in range(20)]
            together = disk.submit([(part, 0, entries([1]))], {"a": b"together"})
            await asyncio.gather(*changes, together)
            assert disk.notes.get("a") == b"together"
            assert part.last == 1

    run(main())


@pytest.mark.parametrize(
    "wrong", [{1: b"x"}, {"a": "x"}, {"a": 1}, {"a": bytearray(b"x")}, {b"a": b"x"}, {}]
)
def test_what_is_no_note_is_invalid(tmp_path: Path, wrong: dict[str, bytes | None]) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            with pytest.raises(Invalid):
                disk.notes.submit(wrong)
            await disk.notes.submit({"a": b"fine"})
            assert disk.notes.items() == [("a", b"fine")]

    run(main())


def test_one_that_was_not_written_is_not_there(tmp_path: Path) -> None:
    async def main() -> None:
        files = WatchedFiles(tmp_path)
        async with await Disk.open(files, SMALL) as disk:
            await disk.notes.submit({"a": b"before"})
            with files.failing("write", "wal/", errno.ENOSPC), pytest.raises(Full):
                await disk.notes.submit({"a": b"lost", "b": b"lost"})
            assert disk.notes.items() == [("a", b"before")]
            await disk.notes.submit({"c": b"after"})
        async with await Disk.open(tmp_path, SMALL) as disk:
            assert disk.notes.items() == [("a", b"before"), ("c", b"after")]
        with pytest.raises(Closed):
            disk.notes.submit({"a": b"closed"})

    run(main())


def test_they_take_checkpoints_so_that_their_log_does_not_grow(tmp_path: Path) -> None:
    async def main() -> None:
        with patch.object(notes_module, "LOGGED_BYTES_MIN", 200):
            async with await Disk.open(tmp_path, SMALL) as disk:
                for at in range(300):
                    await disk.notes.submit({"a": b"%d" % at, f"key {at % 5}": bytes(at % 7)})
                    if at % 50 == 0:
                        await disk.flush()
                await disk._engine.checkpoints.tasks.end()
                status = disk.notes.partition.status()
                assert status.checkpoint > 250
                assert status.segments <= 2
                expected = disk.notes.items()
                await disk._engine.file_remover.tasks.end()
                assert len([name for name in names(tmp_path, "ckpt") if name.endswith("ckpt")]) == 1
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert disk.notes.items() == expected
                assert disk.notes.get("a") == b"299"

    run(main())


def test_a_checkpoint_of_them_that_fails_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        files = WatchedFiles(tmp_path)
        with patch.object(notes_module, "LOGGED_BYTES_MIN", 20):
            async with await Disk.open(files, SMALL) as disk:
                with files.failing("create", "ckpt/", errno.ENOSPC):
                    for at in range(10):
                        await disk.notes.submit({"a": b"%d" % at})
                    await disk._engine.checkpoints.tasks.end()
                assert "could not be compacted" in caplog.text
                assert disk.notes.get("a") == b"9"
                for at in range(10, 20):
                    await disk.notes.submit({"a": b"%d" % at})
                await disk._engine.checkpoints.tasks.end()
                assert disk.notes.partition.status().checkpoint > 0
        async with await Disk.open(tmp_path, SMALL) as disk:
            assert disk.notes.items() == [("a", b"19")]

    run(main())


def test_damaged_ones_refuse_to_open_with_the_place(tmp_path: Path) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            await disk.notes.submit({"a": b"a value of some length"})
            await disk.flush()
        (path,) = (tmp_path / "seg").iterdir()
        stored = bytearray(path.read_bytes())
        stored[70] ^= 1
        path.write_bytes(stored)
        with pytest.raises(Corrupt) as caught:
            await Disk.open(tmp_path, SMALL)
        assert path.name in str(caught.value.path)

    run(main())


def test_a_write_of_two_that_change_the_notes_is_two_writes(tmp_path: Path) -> None:
    """Each follows the one before, whoever wrote it: there is no conflict between them."""

    async def main() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            part = await disk.partition("p")
            one = disk.submit([(part, 0, entries([1]))], {"a": b"1"})
            other = disk.submit([(part, 1, entries([2]))], {"a": b"2"})
            with pytest.raises(Conflict):
                disk.submit([(part, 5, entries([6]))], {"a": b"refused"})
            third = disk.notes.submit({"b": b"3"})
            await asyncio.gather(one, other, third)
            assert disk.notes.items() == [("a", b"2"), ("b", b"3")]

    run(main())


@given(
    st.binary(max_size=40)
    | st.dictionaries(
        st.text(max_size=3) | st.integers(0, 9), st.none() | st.binary() | st.text()
    ).map(msgspec.msgpack.encode)
)
def test_any_bytes_are_notes_or_corrupt(data: bytes) -> None:
    try:
        found = _decoded(data)
    except Corrupt:
        return
    assert all(isinstance(key, str) for key in found)
    assert all(value is None or isinstance(value, bytes) for value in found.values())
