"""The simulated disk loses what it may lose, keeps what it must keep, and fails as real ones do."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.segments.io.files import FileSystem, read_file, write_file
from stratalog.testing.disk_faults import FileCall, PowerLost, SimulatedFiles, When

SEEDS = 200
SECTOR = 512


def outcomes(files: SimulatedFiles) -> Iterator[SimulatedFiles]:
    for seed in range(SEEDS):
        yield files.after_power_loss(Random(seed))


def contents(files: SimulatedFiles) -> dict[str, bytes]:
    return {path: read_file(files, path) for path in files.names()}


def possible(files: SimulatedFiles) -> list[dict[str, bytes]]:
    """The different outcomes of a loss of power, as far as the seeds find them."""
    found: list[dict[str, bytes]] = []
    for outcome in map(contents, outcomes(files)):
        if outcome not in found:
            found.append(outcome)
    return found


def bytes_of(files: SimulatedFiles, path: str) -> list[bytes]:
    return [outcome[path] for outcome in possible(files) if path in outcome]


def synced(files: SimulatedFiles, path: str, data: bytes) -> None:
    write_file(files, path, [data])
    files.sync_folder(path.rpartition("/")[0])


# ---- what survives


def test_what_is_synced_survives_every_loss_of_power() -> None:
    files = SimulatedFiles()
    files.make_folder("wal/old")
    files.sync_folder("")
    files.sync_folder("wal")
    synced(files, "DISK", b"disk")
    synced(files, "wal/1.wal", b"x" * 5000)
    for outcome in outcomes(files):
        assert contents(outcome) == {"DISK": b"disk", "wal/1.wal": b"x" * 5000}
        assert outcome.list("") == ["DISK", "wal"]
        assert outcome.list("wal") == ["1.wal", "old"]
        assert outcome.used_bytes == 5004


def test_the_bytes_of_a_synced_file_may_be_without_a_name() -> None:
    files = SimulatedFiles()
    write_file(files, "a", [b"bytes"])
    assert {*map(str, possible(files))} == {"{}", str({"a": b"bytes"})}


def test_a_synced_name_may_be_without_bytes() -> None:
    files = SimulatedFiles()
    files.create("a").write_at(0, b"bytes")
    files.sync_folder("")
    found = bytes_of(files, "a")
    assert len(found) == len(possible(files)), "the name is always there"
    assert {b"", b"bytes"} <= {*found}


def test_names_in_a_folder_go_with_a_folder_whose_own_name_is_lost() -> None:
    files = SimulatedFiles()
    files.make_folder("seg")
    synced(files, "seg/a", b"bytes")
    assert {*map(str, possible(files))} == {"{}", str({"seg/a": b"bytes"})}
    files.sync_folder("")
    assert possible(files) == [{"seg/a": b"bytes"}]


def test_an_unsynced_write_tears_between_sectors_and_never_within_one() -> None:
    files = SimulatedFiles()
    synced(files, "a", b"-" * 4 * SECTOR)
    inode = files._disk.inode("a")
    inode.change(100, b"x" * 3 * SECTOR)  # reaches into four sectors
    pieces = [SECTOR - 100, SECTOR, SECTOR, 100]
    found = bytes_of(files, "a")
    for data in found:
        body = data[100 : 100 + 3 * SECTOR]
        for size in pieces:
            assert len({*body[:size]}) == 1, "a sector is old or new"
            body = body[size:]
        assert data[:100] == b"-" * 100
    assert len(found) > 10, "any of the sixteen"


def test_what_is_missing_below_something_that_landed_reads_as_zeros() -> None:
    files = SimulatedFiles()
    file = files.create("a")
    files.sync_folder("")
    file.write_at(0, b"x" * SECTOR)
    file.write_at(SECTOR, b"y" * SECTOR)
    found = bytes_of(files, "a")
    assert b"\0" * SECTOR + b"y" * SECTOR in found, "the second without the first"
    assert b"x" * SECTOR in found, "the first without the second"
    assert b"\0" * SECTOR in found, "a length without bytes"


def test_a_later_write_to_a_sector_does_not_land_without_the_earlier_one() -> None:
    files = SimulatedFiles()
    file = files.create("a")
    files.sync_folder("")
    file.write_at(0, b"one")
    file.write_at(3, b"two")
    found = {data.rstrip(b"\0") for data in bytes_of(files, "a")}
    assert found == {b"", b"one", b"onetwo"}


def test_an_unsynced_overwrite_leaves_the_old_bytes_or_the_new_ones() -> None:
    files = SimulatedFiles()
    file = files.create("a")
    file.write_at(0, b"old")
    file.sync()
    files.sync_folder("")
    file.write_at(0, b"new")
    assert {*bytes_of(files, "a")} == {b"old", b"new"}
    assert contents(files) == {"a": b"new"}


def test_an_unsynced_allocation_may_be_lost_and_a_synced_one_may_not() -> None:
    files = SimulatedFiles()
    file = files.create("a")
    files.sync_folder("")
    file.allocate(100)
    assert files.size_of("a") == 100
    assert {*bytes_of(files, "a")} == {b"", bytes(100)}
    file.sync()
    assert {*bytes_of(files, "a")} == {bytes(100)}
    file.allocate(50)
    assert files.size_of("a") == 100, "it never shrinks a file"


def test_names_are_lost_independently_of_one_another() -> None:
    files = SimulatedFiles()
    for name in "abc":
        write_file(files, name, [])
    assert len(possible(files)) == 8


def test_removed_files_may_come_back_until_the_folder_is_synced() -> None:
    files = SimulatedFiles()
    synced(files, "a", b"a")
    synced(files, "b", b"b")
    files.remove("a")
    files.remove("b")
    assert len(possible(files)) == 4
    files.sync_folder("")
    assert possible(files) == [{}]


def test_a_rename_is_atomic() -> None:
    files = SimulatedFiles()
    synced(files, "a", b"old")
    synced(files, "a.tmp", b"new")
    files.rename("a.tmp", "a")
    assert {*map(str, possible(files))} == {
        str({"a": b"old", "a.tmp": b"new"}),
        str({"a": b"new"}),
    }


def test_a_rename_of_a_new_file_over_an_old_one_shows_one_of_them_whatever_is_lost() -> None:
    files = SimulatedFiles()
    synced(files, "a", b"old")
    write_file(files, "a.tmp", [b"new"])
    files.rename("a.tmp", "a")
    write_file(files, "a.tmp", [b"newer"])
    found = possible(files)
    assert {outcome["a"] for outcome in found} == {b"old", b"new"}
    assert {"a": b"new"} in found, "the rename survived, the file created after it did not"
    assert {"a": b"old", "a.tmp": b"newer"} not in found, "it has the name that the rename freed"


def test_a_name_that_was_used_again_has_one_file() -> None:
    files = SimulatedFiles()
    synced(files, "a", b"old")
    files.remove("a")
    write_file(files, "a", [b"new"])
    assert {*map(str, possible(files))} == {str({"a": b"old"}), "{}", str({"a": b"new"})}


def test_nothing_and_everything_are_common_outcomes() -> None:
    files = SimulatedFiles()
    for number in range(20):
        files.create(f"{number:02}").write_at(0, b"x" * 10 * SECTOR)
    found = [contents(outcome) for outcome in outcomes(files)]
    assert SEEDS / 6 < sum(not each for each in found) < SEEDS / 2
    assert SEEDS / 6 < found.count(contents(files)) < SEEDS / 2


def test_the_same_seed_gives_the_same_disk() -> None:
    def run(seed: int) -> tuple[dict[str, bytes], list[FileCall]]:
        files = SimulatedFiles(random=Random(seed))
        files.crash_at(SCRIPT_CALLS - 3, "torn")
        with pytest.raises(PowerLost):
            script(files, [])
        return contents(files.after_power_loss(Random(seed))), files.calls

    assert [run(seed) for seed in range(50)] == [run(seed) for seed in range(50)]


def test_looking_at_an_outcome_changes_nothing() -> None:
    files = SimulatedFiles()
    write_file(files, "a", [b"bytes"])
    before = possible(files)
    for outcome in outcomes(files):
        write_file(outcome, "b", [b"more"])
        outcome.make_folder("c")
    synced(files.after_kill(), "d", b"more")
    assert possible(files) == before


def test_what_came_up_again_is_durable() -> None:
    files = SimulatedFiles()
    files.create("a").write_at(0, b"x" * 10 * SECTOR)
    for outcome in outcomes(files):
        assert contents(outcome.after_power_loss(Random(1))) == contents(outcome)


@given(st.data())
def test_any_history_keeps_what_was_synced_and_shows_nothing_that_was_never_written(
    data: st.DataObject,
) -> None:
    """One file, sector by sector: each holds its synced value or a later one."""
    files = SimulatedFiles()
    file = files.create("a")
    files.sync_folder("")
    allowed: dict[int, set[int]] = {sector: {0} for sector in range(4)}
    for value in range(1, data.draw(st.integers(1, 8)) + 1):
        first = data.draw(st.integers(0, 3))
        last = data.draw(st.integers(first, 3))
        file.write_at(first * SECTOR, bytes([value]) * SECTOR * (last - first + 1))
        for sector in range(first, last + 1):
            allowed[sector].add(value)
        if data.draw(st.booleans()):
            file.sync()
            allowed = {sector: {max(values)} for sector, values in allowed.items()}
    found = read_file(files.after_power_loss(Random(data.draw(st.integers(0, 999)))), "a")
    for sector, values in allowed.items():
        piece = found[sector * SECTOR : (sector + 1) * SECTOR]
        assert {*piece} <= values
        assert len({*piece}) <= 1
        assert piece or 0 in values, "a synced sector is there"


# ---- a killed process


def test_after_a_kill_everything_is_there_and_still_unsynced() -> None:
    files = SimulatedFiles()
    files.create("a").write_at(0, b"bytes")
    synced(files, "b", b"gone")
    handle = files.open("b")
    files.remove("b")
    with files.lock("LOCK"):
        after = files.after_kill()
        assert contents(after) == {"LOCK": b"", "a": b"bytes"}
        assert after.used_bytes == 5, "the file that was only open is gone"
        with after.lock("LOCK"):
            pass
    assert possible(after) == possible(files)
    assert {"a": b""} in possible(after), "nobody synced its bytes"
    assert any("b" in outcome for outcome in possible(after)), "its removal was not synced"
    handle.close()


def test_what_was_found_after_a_kill_can_be_synced_by_its_reader() -> None:
    files = SimulatedFiles()
    file = files.create("a")
    files.sync_folder("")
    file.write_at(0, b"bytes")
    after = files.after_kill()
    after.open("a").sync()
    assert possible(after) == [{"a": b"bytes"}]


# ---- crashes


def script(files: FileSystem, done: list[str]) -> None:
    """What a careful writer does: each step is durable when it is done."""
    files.make_folder("wal/x")
    files.sync_folder("")
    files.sync_folder("wal")
    file = files.create("wal/x/1")
    files.sync_folder("wal/x")
    for number in range(3):
        file.write_at(number * 2000, bytes([number + 1]) * 2000)
        file.sync()
        done.append(f"batch {number}")
    file.close()
    write_file(files, "wal/x/2.tmp", [b"new"])
    files.rename("wal/x/2.tmp", "wal/x/2")
    files.sync_folder("wal/x")
    done.append("renamed")
    files.remove("wal/x/1")
    files.sync_folder("wal/x")
    done.append("removed")


def count_calls() -> int:
    files = SimulatedFiles()
    script(files, [])
    return len(files.calls)


SCRIPT_CALLS = count_calls()


@pytest.mark.parametrize("when", ["before", "after", "torn"])
def test_what_was_done_before_a_crash_is_there_after_it(when: When) -> None:
    for number in range(1, SCRIPT_CALLS + 1):
        files = SimulatedFiles(random=Random(number))
        files.crash_at(number, when)
        done: list[str] = []
        with pytest.raises(PowerLost):
            script(files, done)
        assert files.dead
        assert len(files.calls) == number
        for seed in range(40):
            for after in (files.after_power_loss(Random(seed)), files.after_kill()):
                check(contents(after), done)


def check(found: dict[str, bytes], done: list[str]) -> None:
    if "renamed" in done:
        assert found["wal/x/2"] == b"new"
    if "removed" in done:
        assert "wal/x/1" not in found
    elif "batch 0" in done and "renamed" not in done:
        for number in range(sum(each.startswith("batch") for each in done)):
            piece = found["wal/x/1"][number * 2000 : (number + 1) * 2000]
            assert piece == bytes([number + 1]) * 2000


def outcomes_of_a_crash_at_sync(when: When) -> set[bytes]:
    found = set()
    for seed in range(SEEDS):
        files = SimulatedFiles(random=Random(seed))
        file = files.create("a")
        files.sync_folder("")
        file.write_at(0, b"x" * 2 * SECTOR)
        files.crash_at(4, when)
        with pytest.raises(PowerLost):
            file.sync()
        found.add(bytes(files._disk.inode("a").durable))
    return found


def test_a_torn_sync_has_made_some_sectors_durable() -> None:
    assert outcomes_of_a_crash_at_sync("before") == {b""}
    assert outcomes_of_a_crash_at_sync("after") == {b"x" * 2 * SECTOR}
    assert outcomes_of_a_crash_at_sync("torn") > {b"", b"x" * SECTOR, b"x" * 2 * SECTOR}


def test_what_a_torn_sync_made_durable_does_not_become_older() -> None:
    for seed in range(20):
        files = SimulatedFiles(random=Random(seed))
        file = files.create("a")
        files.sync_folder("")
        for version in (b"1", b"2", b"3"):
            file.write_at(0, version)
        files.crash_at(6, "torn")
        with pytest.raises(PowerLost):
            file.sync()
        durable = bytes(files._disk.inode("a").durable)
        assert all(data >= durable for data in bytes_of(files.after_kill(), "a"))


def test_a_torn_sync_of_a_folder_has_made_some_names_durable() -> None:
    found = set()
    for seed in range(SEEDS):
        files = SimulatedFiles(random=Random(seed))
        files.create("a")
        files.create("b")
        files.crash_at(3, "torn")
        with pytest.raises(PowerLost):
            files.sync_folder("")
        found.add("".join(files._disk.root.durable))
    assert found == {"", "a", "b", "ab"}


def test_a_torn_write_is_a_beginning() -> None:
    sizes = set()
    for seed in range(SEEDS):
        files = SimulatedFiles(random=Random(seed))
        file = files.create("a")
        files.crash_at(2, "torn")
        with pytest.raises(PowerLost):
            file.write_at(0, b"abcd")
        sizes.add(files.size_of("a"))
        assert b"abcd".startswith(read_file(files.after_kill(), "a"))
    assert sizes == {0, 1, 2, 3, 4}


def test_a_torn_new_folder_has_some_of_its_levels() -> None:
    found = set()
    for seed in range(SEEDS):
        files = SimulatedFiles(random=Random(seed))
        files.crash_at(1, "torn")
        with pytest.raises(PowerLost):
            files.make_folder("a/b")
        found.add((files.after_kill().exists("a"), files.after_kill().exists("a/b")))
    assert found == {(False, False), (True, False), (True, True)}


def test_anything_else_that_is_torn_happened_or_did_not() -> None:
    found = set()
    for seed in range(SEEDS):
        files = SimulatedFiles(random=Random(seed))
        write_file(files, "a", [])
        files.crash_at(len(files.calls) + 1, "torn")
        with pytest.raises(PowerLost):
            files.rename("a", "b")
        found.add(tuple(files.names()))
    assert found == {("a",), ("b",)}


def test_a_dead_machine_does_nothing_and_lets_go_of_everything() -> None:
    files = SimulatedFiles()
    told: list[str] = []
    files.on_crash(lambda: told.append("off"))
    file = files.create("a")
    with files.lock("LOCK"):
        files.crash()
        files.crash()
        calls: list[Callable[[], object]] = [
            lambda: file.write_at(0, b"x"),
            lambda: file.read_at(0, 1),
            file.size,
            lambda: file.allocate(1),
            file.sync,
            lambda: files.create("b"),
            lambda: files.open("a"),
            lambda: files.exists("a"),
            lambda: files.list(""),
            lambda: files.make_folder("b"),
            lambda: files.rename("a", "b"),
            lambda: files.remove("a"),
            lambda: files.sync_folder(""),
            lambda: files.lock("LOCK").__enter__(),
        ]
        for call in calls:
            with pytest.raises(PowerLost):
                call()
    file.close()
    assert told == ["off"]
    assert files.names() == ["LOCK", "a"]
    assert not issubclass(PowerLost, OSError)


def test_nobody_cleans_up_after_a_loss_of_power() -> None:
    files = SimulatedFiles()
    files.crash_at(2, "after")
    with pytest.raises(PowerLost):
        write_file(files, "a", [b"bytes"])
    assert contents(files.after_kill()) == {"a": b"bytes"}


def test_a_crash_is_told_to_whoever_asked() -> None:
    files = SimulatedFiles()
    names: list[str] = []
    files.on_crash(lambda: names.extend(files.names()))
    files.crash_at(1, "after")
    with pytest.raises(PowerLost):
        files.create("a")
    assert names == ["a"]


def test_calls_are_numbered_and_closing_is_none() -> None:
    files = SimulatedFiles()
    write_file(files, "a", [b"bytes"])
    with files.lock("LOCK"):
        pass
    assert files.calls == [
        FileCall(1, "create", "a"),
        FileCall(2, "write", "a"),
        FileCall(3, "sync", "a"),
        FileCall(4, "lock", "LOCK"),
    ]


# ---- failures


def test_a_failed_sync_drops_what_it_should_have_made_durable() -> None:
    files = SimulatedFiles()
    file = files.create("a")
    files.sync_folder("")
    file.write_at(0, b"kept")
    file.sync()
    file.write_at(4, b"lost")
    files.fail_at(len(files.calls) + 1, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    assert file.read_at(0, 8) == b"keptlost", "the page cache still has it"
    file.sync()
    assert possible(files) == [{"a": b"kept"}], "the second sync had nothing to write"
    file.write_at(4, b"lost")
    file.sync()
    assert possible(files) == [{"a": b"keptlost"}]


def test_what_is_written_after_a_failed_sync_has_a_hole_before_it() -> None:
    files = SimulatedFiles()
    file = files.create("a")
    files.sync_folder("")
    file.write_at(0, b"lost")
    files.fail_at(4, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.write_at(4, b"kept")
    file.sync()
    assert possible(files) == [{"a": b"\0\0\0\0kept"}]


def test_a_failed_write_has_written_a_beginning() -> None:
    sizes = set()
    for seed in range(SEEDS):
        files = SimulatedFiles(random=Random(seed))
        file = files.create("a")
        files.fail_at(2, errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            file.write_at(0, b"abcd")
        assert b"abcd".startswith(file.read_at(0, 9))
        sizes.add(file.size())
    assert sizes == {0, 1, 2, 3}, "never all of it"


def test_other_calls_that_fail_have_no_effect() -> None:
    files = SimulatedFiles()
    synced(files, "a", b"bytes")
    file = files.open("a")
    files.fail_at(len(files.calls) + 1, errno.EIO, times=9)
    for call in (
        lambda: files.create("b"),
        lambda: files.open("a"),
        lambda: files.rename("a", "b"),
        lambda: files.remove("a"),
        lambda: files.make_folder("c"),
        lambda: files.sync_folder(""),
        lambda: files.lock("LOCK").__enter__(),
        lambda: files.list(""),
        lambda: file.read_at(0, 1),
    ):
        with pytest.raises(OSError, match="Input/output"):
            call()
    assert files.list("") == ["a"]
    assert file.read_at(0, 9) == b"bytes"


def test_a_failed_sync_of_a_folder_can_be_repeated() -> None:
    files = SimulatedFiles()
    write_file(files, "a", [b"bytes"])
    files.fail_at(len(files.calls) + 1, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        files.sync_folder("")
    assert len(possible(files)) == 2
    files.sync_folder("")
    assert possible(files) == [{"a": b"bytes"}]


def test_a_rule_fails_the_calls_that_it_names_until_it_ends() -> None:
    files = SimulatedFiles()
    files.fail_if(lambda call: errno.ENOSPC if call.operation == "write" else None)
    for path in ("a", "b"):
        with pytest.raises(OSError, match="No space"):
            write_file(files, path, [b"bytes"])
    assert files.names() == [], "write_file removed what it had begun"
    files.fail_if(None)
    write_file(files, "a", [b"bytes"])
    assert files.names() == ["a"]


def test_a_failure_has_the_class_of_its_number() -> None:
    files = SimulatedFiles()
    files.fail_at(1, errno.EACCES)
    with pytest.raises(PermissionError):
        files.create("a")


def test_a_full_disk_takes_what_fits() -> None:
    files = SimulatedFiles(capacity_bytes=10)
    file = files.create("a")
    file.write_at(0, b"x" * 8)
    with pytest.raises(OSError, match="No space"):
        file.allocate(11)
    assert files.used_bytes == 8
    with pytest.raises(OSError, match="No space"):
        file.write_at(6, b"yyyyyy")
    assert file.read_at(0, 20) == b"xxxxxxyyyy"
    file.write_at(0, b"z" * 10)
    assert files.used_bytes == 10, "what lies within the file needs no room"
    with pytest.raises(OSError, match="No space"):
        file.write_at(20, b"far away")
    assert file.size() == 10
    files.capacity_bytes = 30
    file.write_at(20, b"far away")
    assert files.used_bytes == 28


def test_a_removed_file_gives_its_space_back_when_nobody_has_it_open() -> None:
    files = SimulatedFiles(capacity_bytes=10)
    write_file(files, "a", [b"x" * 10])
    reader = files.open("a")
    files.remove("a")
    assert files.used_bytes == 10
    reader.close()
    assert files.used_bytes == 0
    write_file(files, "a", [b"x" * 4])
    write_file(files, "b", [b"x" * 6])
    files.rename("a", "b")
    files.rename("b", "b")
    assert files.used_bytes == 4
    assert files.after_kill().used_bytes == 4
    files.remove("b")
    assert files.used_bytes == 0


def test_the_capacity_outlives_the_process() -> None:
    files = SimulatedFiles(capacity_bytes=10)
    synced(files, "a", b"x" * 8)
    for after in (files.after_kill(), files.after_power_loss(Random(1))):
        assert after.used_bytes == 8
        with pytest.raises(OSError, match="No space"):
            write_file(after, "b", [b"xxx"])


def test_damage_is_seen_at_once_and_after_a_loss_of_power() -> None:
    files = SimulatedFiles()
    synced(files, "a", b"abcdef")
    files.damage("a", 1, 0x01)
    files.damage("a", 3, b"__")
    assert contents(files) == {"a": b"acc__f"}
    assert possible(files) == [{"a": b"acc__f"}]
    files.truncate("a", 2)
    assert possible(files) == [contents(files)] == [{"a": b"ac"}]
    assert files.used_bytes == 2
    with pytest.raises(AssertionError):
        files.damage("a", 2, 1)
    with pytest.raises(AssertionError):
        files.truncate("a", 3)


def test_damage_to_unsynced_bytes_is_synced_with_them() -> None:
    files = SimulatedFiles()
    file = files.create("a")
    files.sync_folder("")
    file.write_at(0, b"abcdef")
    files.damage("a", 0, b"_")
    files.truncate("a", 4)
    file.sync()
    assert possible(files) == [contents(files)] == [{"a": b"_bcd"}]


def test_threads_may_share_it() -> None:
    files = SimulatedFiles(capacity_bytes=8 * 50 * 10)

    def work(worker: int) -> None:
        file = files.create(f"{worker}")
        for number in range(50):
            file.write_at(number * 10, b"x" * 10)
            file.sync()
        file.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert files.used_bytes == 8 * 50 * 10
    assert [call.number for call in files.calls] == [*range(1, 8 * 101 + 1)]


def test_a_rename_to_another_folder_is_a_defect() -> None:
    files = SimulatedFiles()
    files.make_folder("b")
    write_file(files, "a", [])
    with pytest.raises(AssertionError, match="stays in its folder"):
        files.rename("a", "b/a")


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "./a"])
def test_a_path_that_leaves_the_data_directory_is_a_defect(path: str) -> None:
    files = SimulatedFiles()
    files.make_folder("a")
    with pytest.raises(AssertionError):
        files.create(path)
