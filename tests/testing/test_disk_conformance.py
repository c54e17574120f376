"""A script of file calls has the same results on the operating system and on the simulated disk."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.errors import Denied, Full, NotFound, StratalogError, Unavailable
from stratalog.segments.io.files import (
    PARTS_MAX,
    SMALL_PART_BYTES,
    File,
    FileSystem,
    LocalFiles,
    NotWritten,
    read_file,
    typed,
    typed_errors,
    write_file,
)
from stratalog.testing.disk_faults import FileCall, SimulatedFiles


@pytest.fixture(params=["local", "simulated"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    if request.param == "simulated":
        return SimulatedFiles()
    if sys.platform == "win32":
        pytest.skip("a node's disk needs flock and fdatasync")
    return LocalFiles(tmp_path)


def refused(call: Callable[[], object]) -> type[OSError]:
    with pytest.raises(OSError) as raised:  # noqa: PT011 - the class is what is returned
        call()
    return raised.type


def test_files_are_written_and_read(files: FileSystem) -> None:
    file: File = files.create("a")
    file.write_at(0, b"abc")
    file.write_at(5, bytearray(b"fgh"))
    file.write_at(1, b"_")
    file.write_at(20, b"")
    file.sync()
    assert file.size() == 8
    assert file.read_at(0, 100) == b"a_c\0\0fgh"
    assert file.read_at(6, 1) == b"g"
    assert file.read_at(8, 1) == file.read_at(100, 1) == b""
    file.close()
    assert read_file(files, "a") == b"a_c\0\0fgh"


@pytest.mark.parametrize("size", [0, 1, SMALL_PART_BYTES, 3 * SMALL_PART_BYTES])
@pytest.mark.parametrize("count", [1, 2, PARTS_MAX, PARTS_MAX + 1, 2 * PARTS_MAX + 7])
def test_parts_are_written_one_after_another(files: FileSystem, count: int, size: int) -> None:
    parts = [bytes([number % 251]) * size for number in range(count)]
    file = files.create("a")
    file.write_at(0, b"<")
    written = file.write_at(1, *parts[:-1], memoryview(parts[-1]), bytearray(b">"))
    assert written == count * size + 1
    assert file.read_at(0, file.size()) == b"<" + b"".join(parts) + b">"
    assert file.write_at(1) == 0
    assert file.size() == count * size + 2
    file.close()


@pytest.mark.parametrize("size", [0, 9, 3000])
@pytest.mark.parametrize("count", [1, 2, PARTS_MAX + 1, 3 * PARTS_MAX])
@pytest.mark.parametrize("allocated", [1, 1 << 24])
def test_parts_are_written_durably(
    files: FileSystem, count: int, size: int, allocated: int
) -> None:
    parts = [bytes([number % 251]) * size for number in range(count)]
    file = files.create("a")
    file.allocate(allocated)
    assert file.write_durably(3, *parts) == size * count
    assert file.read_at(3, size * count) == b"".join(parts)
    file.close()


@pytest.mark.skipif(not hasattr(os, "RWF_DSYNC"), reason="this system has no such call")
@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_a_system_that_cannot_write_durably_in_one_call_does_it_in_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    whole = os.pwritev
    synced: list[int] = []

    def refusing(fd: int, parts: list[bytes], at: int, flags: int = 0) -> int:
        if flags:
            raise OSError(number, os.strerror(number))
        return whole(fd, parts, at)

    monkeypatch.setattr(os, "pwritev", refusing)
    monkeypatch.setattr(os, "fdatasync", synced.append)
    file = LocalFiles(tmp_path).create("a")
    file.allocate(14)
    assert [file.write_durably(at, b"x" * 7) for at in (0, 7)] == [7, 7]
    assert file.read_at(0, 20) == b"x" * 14
    assert len(synced) == 2
    file.close()


@pytest.mark.skipif(not hasattr(os, "RWF_DSYNC"), reason="this system has no such call")
def test_what_is_written_too_short_is_finished_and_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, synced = os.pwrite, list[int]()
    monkeypatch.setattr(
        os, "pwritev", lambda fd, parts, at, _flags: plain(fd, b"".join(parts)[:5], at)
    )
    monkeypatch.setattr(os, "fdatasync", synced.append)
    file = LocalFiles(tmp_path).create("a")
    file.allocate(8)
    assert file.write_durably(0, b"abcd", b"efgh") == 8
    assert file.read_at(0, 9) == b"abcdefgh"
    assert len(synced) == 1
    file.close()


def test_a_write_without_an_end_is_told_from_a_sync_that_failed() -> None:
    files = SimulatedFiles()
    file = files.create("a")
    files.fail_if(lambda call: errno.EIO if call.operation == "write" else None)
    with pytest.raises(NotWritten) as told:
        file.write_durably(0, b"x")
    assert told.value.error.errno == errno.EIO
    files.fail_if(lambda call: errno.EIO if call.operation == "sync" else None)
    assert refused(lambda: file.write_durably(0, b"x")) is OSError


def test_a_buffer_is_filled_as_far_as_the_file_goes(files: FileSystem) -> None:
    file = files.create("a")
    file.write_at(0, b"abcdef")
    buffer = bytearray(b"-" * 4)
    assert file.read_into(1, memoryview(buffer)) == 4
    assert buffer == b"bcde"
    assert file.read_into(4, memoryview(buffer)) == 2
    assert buffer[:2] == b"ef"
    assert file.read_into(6, memoryview(buffer)) == file.read_into(0, memoryview(bytearray())) == 0
    file.close()


def test_a_call_that_writes_too_little_is_followed_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform == "win32":
        pytest.skip("a node's disk needs flock and fdatasync")
    whole, plain = os.pwritev, os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: plain(fd, b"".join(parts)[:700], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, [data[:3]], at))
    file = LocalFiles(tmp_path).create("a")
    file.write_at(2, b"a" * 500, b"b" * 500, b"c" * 500)
    assert file.read_at(2, 2000) == b"a" * 500 + b"b" * 500 + b"c" * 500
    file.close()


def test_folders_are_made_and_listed(files: FileSystem) -> None:
    assert files.list("b") == []
    assert files.list("b/c") == []
    files.make_folder("b/c")
    files.make_folder("b/c")
    files.make_folder("")
    write_file(files, "b/z", [])
    write_file(files, "b/a", [])
    assert files.list("") == ["b"]
    assert files.list("b") == ["a", "c", "z"]
    assert files.exists("b/c")
    assert files.exists("b/a")
    assert not files.exists("b/x")
    assert not files.exists("b/a/x")
    files.sync_folder("b")
    files.sync_folder("")


def test_a_rename_replaces(files: FileSystem) -> None:
    write_file(files, "a", [b"a"])
    write_file(files, "b", [b"b"])
    old = files.open("b")
    files.rename("a", "b")
    assert files.list("") == ["b"]
    assert read_file(files, "b") == b"a"
    assert old.read_at(0, 9) == b"b"
    old.close()
    files.rename("b", "b")
    assert read_file(files, "b") == b"a"


def test_an_open_file_outlives_its_name(files: FileSystem) -> None:
    writer = files.create("a")
    writer.write_at(0, b"bytes")
    reader = files.open("a")
    files.remove("a")
    assert files.list("") == []
    writer.write_at(5, b" and more")
    assert reader.read_at(0, 100) == b"bytes and more"
    write_file(files, "a", [b"another"])
    assert reader.read_at(0, 100) == b"bytes and more"
    assert read_file(files, "a") == b"another"
    writer.close()
    reader.close()


def test_what_is_refused_is_refused_in_the_same_way(files: FileSystem) -> None:
    write_file(files, "a", [b"bytes"])
    files.make_folder("b")
    assert refused(lambda: files.create("a")) is FileExistsError
    assert refused(lambda: files.create("b")) is FileExistsError
    assert refused(lambda: files.create("c/a")) is FileNotFoundError
    assert refused(lambda: files.create("a/a")) is NotADirectoryError
    assert refused(lambda: files.open("c")) is FileNotFoundError
    assert refused(lambda: files.remove("c")) is FileNotFoundError
    assert refused(lambda: files.rename("c", "d")) is FileNotFoundError
    assert refused(lambda: files.rename("a", "b")) is IsADirectoryError
    assert refused(lambda: files.list("a")) is NotADirectoryError
    assert refused(lambda: files.make_folder("a")) is FileExistsError
    assert refused(lambda: files.make_folder("a/b/c")) is NotADirectoryError
    assert refused(lambda: files.sync_folder("c")) is FileNotFoundError
    assert refused(lambda: files.sync_folder("a")) is NotADirectoryError
    assert refused(lambda: write_file(files, "a", [b"other"])) is FileExistsError
    assert read_file(files, "a") == b"bytes"


def test_a_file_that_was_opened_is_only_read_and_one_that_was_closed_is_not(
    files: FileSystem,
) -> None:
    write_file(files, "a", [b"bytes"])
    file = files.open("a")
    numbers = []
    for call in (
        lambda: file.write_at(0, b"x"),
        lambda: file.allocate(10),
        lambda: file.read_at(-1, 1),
        file.close,
        file.size,
        file.sync,
        file.close,
    ):
        try:
            numbers.append(call())
        except OSError as error:
            numbers.append(error.errno)
    bad = errno.EBADF
    if sys.platform == "linux":
        assert numbers == [bad, bad, errno.EINVAL, None, bad, bad, bad]
    assert read_file(files, "a") == b"bytes"


def test_an_allocation_reads_as_zeros(files: FileSystem) -> None:
    file = files.create("a")
    file.write_at(0, b"x")
    file.allocate(0)
    file.allocate(4096)
    if sys.platform == "linux":
        assert file.size() == 4096
    assert file.read_at(0, 4096).rstrip(b"\0") == b"x"
    file.close()


def test_a_lock_is_held_once(files: FileSystem) -> None:
    with files.lock("LOCK"):
        assert files.list("") == ["LOCK"]
        assert refused(lambda: files.lock("LOCK").__enter__()) is BlockingIOError
        with files.lock("OTHER"):
            pass
    with files.lock("LOCK"):
        pass


# ---- write_file and typed


def test_write_file_writes_its_parts_and_says_how_much(files: FileSystem) -> None:
    assert write_file(files, "a", [b"ab", bytearray(b"cd"), b"ef"]) == 6
    assert write_file(files, "b", []) == 0
    assert read_file(files, "a") == b"abcdef"


def test_write_file_leaves_nothing_behind_whichever_call_fails() -> None:
    for number in range(1, 5):
        files = SimulatedFiles()
        files.fail_at(number, errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            write_file(files, "a", [b"ab", b"cd"])
        assert files.names() == []
        assert files.used_bytes == 0


def test_write_file_raises_the_first_failure_if_it_cannot_clean_up() -> None:
    files = SimulatedFiles()
    files.fail_at(2, errno.ENOSPC)
    files.fail_at(3, errno.EIO)
    with pytest.raises(OSError, match="No space"):
        write_file(files, "a", [b"ab"])
    assert files.calls[-1] == FileCall(3, "remove", "a")


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, Full),
        (errno.EDQUOT, Full),
        (errno.EACCES, Denied),
        (errno.EROFS, Denied),
        (errno.ENOENT, NotFound),
        (errno.EIO, Unavailable),
    ],
)
def test_an_error_of_the_system_becomes_one_of_ours(
    number: int, expected: type[StratalogError]
) -> None:
    files = SimulatedFiles()
    files.fail_at(1, number)
    failing = typed_errors("writing the journal", "JOURNAL.1")
    with pytest.raises(expected, match="writing the journal failed") as raised, failing:
        files.create("JOURNAL.1")
    assert isinstance(raised.value.__cause__, OSError)


def test_an_error_without_a_number_is_told_in_its_own_words() -> None:
    assert "so it goes" in str(typed(OSError("so it goes"), "reading"))
