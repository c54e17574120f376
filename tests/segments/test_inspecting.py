"""Looking at a data directory: what it holds, every damage, and nothing is changed by it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from segments.damaged_disks import (
    LIVE,
    OPTIONS,
    PLANTERS,
    Planter,
    Victim,
    an_entry,
    checkpoint_state,
    last_batch,
    live_file,
    no_segment,
    wal_in_the_middle,
)
from stratalog import IndexSet
from stratalog.errors import Corrupt, Invalid, NotFound
from stratalog.segments import (
    CheckReport,
    Disk,
    DiskDamageKind,
    DiskReport,
    Entries,
    PartitionStatus,
    check_disk,
    inspect_disk,
)
from stratalog.segments.format.clean_close import CleanClose
from stratalog.segments.format.segment_file import SEGMENT_OVERHEAD_BYTES
from stratalog.segments.inspect import disk_snapshot
from stratalog.segments.inspect.check import DiskCheck, begin_check

BUSY_NODE = Path(__file__).with_name("busy_node.py")


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    return Victim(tmp_path / "data")


def inspected(path: Path) -> DiskReport:
    return asyncio.run(inspect_disk(path))


def checked(path: Path) -> CheckReport:
    return asyncio.run(check_disk(path))


def everything_in(path: Path) -> dict[str, tuple[int, int]]:
    found = sorted(path.rglob("*"))
    return {str(each): (each.stat().st_size, each.stat().st_mtime_ns) for each in found}


class TestWhatItHolds:
    def test_a_partition_is_told_as_the_node_that_opens_it_sees_it(self, victim: Victim) -> None:
        report = inspected(victim.root)

        async def opened() -> tuple[str, dict[str, PartitionStatus]]:
            async with await Disk.open(victim.root, OPTIONS) as disk:
                names = disk.partitions()
                return disk.id, {name: (await disk.partition(name)).status() for name in names}

        disk_id, statuses = asyncio.run(opened())
        assert (report.disk, report.format) == (disk_id, 1)
        assert [each.name for each in report.partitions] == sorted(statuses)
        for each in report.partitions:
            status = statuses[each.name]
            assert (each.first, each.last, each.epoch) == (status.first, status.last, status.epoch)
            assert (each.checkpoint, each.live) == (status.checkpoint, len(status.live))
            assert each.pending == len(status.pending)
            assert (len(each.segments), each.bytes) == (status.segments, status.segment_bytes)

    def test_live_shares_are_by_entries_and_by_bytes(self, victim: Victim) -> None:
        orders, users = inspected(victim.root).partitions
        assert [segment.live_entries for segment in orders.segments] == [1, 5, 20]
        first, second, third = orders.segments
        assert first.live_bytes == len(b"order 3") + 24
        assert second.live_bytes == 5 * (len(b"order 21") + 24)
        assert third.live_bytes == third.bytes - SEGMENT_OVERHEAD_BYTES
        assert (orders.live_entries, orders.entries) == (26, 60)
        assert users.live_entries == users.entries == 10

    def test_the_wal_and_what_waits_in_it_is_told(self, victim: Victim) -> None:
        report = inspected(victim.root)
        (wal,) = report.wals
        assert (wal.path, wal.batches, wal.entries) == (victim.wal, 5, 5)
        assert wal.bytes == os.stat(victim.root / victim.wal).st_size
        assert [each.pending for each in report.partitions] == [5, 0]

    def test_what_the_next_opening_removes_is_told(self, victim: Victim) -> None:
        assert inspected(victim.root).leftovers == ()
        victim.write("seg/left.seg", b"by a crash")
        victim.write("ckpt/left.ckpt", b"by a crash")
        assert set(inspected(victim.root).leftovers) == {"seg/left.seg", "ckpt/left.ckpt"}
        assert checked(victim.root).clean
        asyncio.run(_open(victim.root))
        assert inspected(victim.root).leftovers == ()

    def test_an_overwritten_suffix_is_not_counted(self, tmp_path: Path) -> None:
        async def fill() -> None:
            async with await Disk.open(tmp_path, OPTIONS) as disk:
                partition = await disk.partition("p")
                await partition.append([b"old"] * 30, epoch=1)
                await disk.flush()
                await partition.write(25, Entries.following(25, 2, [b"new"] * 2))

        asyncio.run(fill())
        (each,) = inspected(tmp_path).partitions
        assert (each.last, each.epoch, each.pending) == (27, 2, 2)
        assert [segment.last for segment in each.segments] == [20, 25]
        assert checked(tmp_path).clean

    def test_the_report_is_json(self, victim: Victim) -> None:
        facts = json.loads(json.dumps(inspected(victim.root).to_dict()))
        assert facts["partitions"][0]["live_entries"] == 26
        assert facts["partitions"][0]["segments"][0]["live_entries"] == 1


class TestDamage:
    def test_a_good_directory_is_clean_and_everything_in_it_was_read(self, victim: Victim) -> None:
        report = checked(victim.root)
        assert (report.damages, report.remarks, report.clean) == ((), (), True)
        assert (report.partitions, report.segments, report.wals) == (2, 4, 1)
        assert report.entries == 60 + 10 + 5
        files = [*victim.segments, victim.checkpoint, victim.wal]
        assert report.bytes > sum(os.stat(victim.root / path).st_size for path in files)

    @pytest.mark.parametrize("planter", PLANTERS, ids=lambda planter: str(planter.__name__))
    def test_every_kind_is_found_where_it_is(self, victim: Victim, planter: Planter) -> None:
        path, kind = planter(victim), PLANTERS[planter]
        report = checked(victim.root)
        found = [*report.damages, *report.remarks]
        assert [(each.kind, each.path) for each in found] == [(kind, path)]
        assert report.clean is kind.is_remark

    def test_every_kind_is_planted(self) -> None:
        assert set(PLANTERS.values()) == set(DiskDamageKind)

    @pytest.mark.parametrize("planter", PLANTERS, ids=lambda planter: str(planter.__name__))
    def test_a_directory_that_a_node_refuses_is_not_called_clean(
        self, victim: Victim, planter: Planter
    ) -> None:
        planter(victim)
        clean = checked(victim.root).clean
        try:
            asyncio.run(_open(victim.root))
        except Corrupt:
            assert not clean
        else:
            assert clean or PLANTERS[planter] in {
                DiskDamageKind.SEGMENT_UNREADABLE,
                DiskDamageKind.SEGMENT_ENTRIES,
                DiskDamageKind.ENTRY_DAMAGED,
                DiskDamageKind.STATE_DAMAGED,
                DiskDamageKind.LIVE_FILE_DIFFERS,
                DiskDamageKind.CHECKPOINT_UNREADABLE,
            }

    def test_all_damage_is_told_and_not_only_the_first(self, victim: Victim) -> None:
        for planter in (no_segment, checkpoint_state, wal_in_the_middle, live_file):
            planter(victim)
        report = checked(victim.root)
        assert [each.kind.value for each in report.damages] == [
            "file-missing",
            "wal-damaged",
            "state-damaged",
        ]
        assert [each.kind.value for each in report.remarks] == ["live-file-unreadable"]

    def test_a_damaged_entry_is_named_by_its_index_its_partition_and_its_byte(
        self, victim: Victim
    ) -> None:
        path = an_entry(victim)
        (damage,) = checked(victim.root).damages
        assert (damage.index, damage.count, damage.partition) == (21, 1, "orders")
        assert damage.byte is not None
        assert victim.read(path)[damage.byte :].startswith(b"order 2")

    def test_a_damaged_batch_is_named_by_its_byte(self, victim: Victim) -> None:
        path = wal_in_the_middle(victim)
        (damage,) = checked(victim.root).damages
        assert damage.byte == victim.frames(path)[0]

    def test_a_doubtful_batch_is_told_before_and_after_it_is_kept_aside(
        self, victim: Victim
    ) -> None:
        place = victim.frames(victim.wal)[-1]
        last_batch(victim)
        report = inspected(victim.root)
        assert report.partitions[0].last == 64
        (doubt,) = report.doubtful
        assert (doubt.path, doubt.position, doubt.is_kept) == (victim.wal, place, False)
        asyncio.run(_open(victim.root))
        (kept,) = inspected(victim.root).doubtful
        assert (kept.is_kept, kept.bytes) == (True, doubt.bytes)
        kinds = {each.kind for each in checked(victim.root).remarks}
        assert DiskDamageKind.DOUBT_KEPT in kinds

    def test_what_cannot_be_told_for_damage_is_an_error_of_inspect(self, victim: Victim) -> None:
        path = no_segment(victim)
        with pytest.raises(Corrupt, match="missing") as caught:
            inspected(victim.root)
        assert caught.value.path == path

    def test_the_progress_ends_at_all_that_was_read(self, victim: Victim) -> None:
        told: list[tuple[int, int]] = []
        asyncio.run(check_disk(victim.root, on_progress=lambda *each: told.append(each)))
        assert told == sorted(told)
        assert 0 < told[-1][0] <= told[-1][1]


@pytest.mark.parametrize("is_closed", [False, True])
def test_flips_and_cuts_of_real_files_are_named(victim: Victim, is_closed: bool) -> None:
    """A sample; ``test_every_flip`` has all of them, in memory."""
    random = Random(1)
    if is_closed:
        victim.close()
    paths = ["DISK", victim.journal, victim.wal, victim.checkpoint, victim.live, *victim.segments]
    for path in [*paths, *(["CLOSED"] if is_closed else [])]:
        whole = victim.read(path)
        for _ in range(6):
            at = random.randrange(len(whole))
            flipped = bytearray(whole)
            flipped[at] ^= 1 << random.randrange(8)
            for damaged in (bytes(flipped), whole[:at]):
                victim.write(path, damaged)
                report = checked(victim.root)
                assert report.damages or report.remarks, (path, at, len(damaged))
        victim.write(path, whole)
    assert checked(victim.root).clean


class TestNothingIsChanged:
    @pytest.mark.parametrize("look", [inspected, checked])
    def test_no_file_is_made_or_touched(self, victim: Victim, look: object) -> None:
        assert callable(look)
        victim.remove("LOCK")
        victim.write("seg/left.seg", b"by a crash")
        before = everything_in(victim.root)
        look(victim.root)
        assert everything_in(victim.root) == before

    @pytest.mark.parametrize("look", [inspected, checked])
    def test_a_place_that_is_no_data_directory_is_told_with_a_hint(
        self, tmp_path: Path, look: object
    ) -> None:
        assert callable(look)
        (tmp_path / "empty").mkdir()
        (tmp_path / "file").touch()
        with pytest.raises(NotFound, match="no directory"):
            look(tmp_path / "none")
        with pytest.raises(NotFound, match="not a data directory") as caught:
            look(tmp_path / "empty")
        assert "stratalog info" in caught.value.hint
        with pytest.raises(Invalid, match="is a file"):
            look(tmp_path / "file")
        assert sorted(each.name for each in tmp_path.rglob("*")) == ["empty", "file"]

    def test_a_node_may_have_it_open(self, victim: Victim) -> None:
        async def beside() -> tuple[DiskReport, CheckReport]:
            async with await Disk.open(victim.root, OPTIONS):
                return await inspect_disk(victim.root), await check_disk(victim.root)

        report, check = asyncio.run(beside())
        assert report.partitions[0].live == len(LIVE)
        assert check.clean


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_node_that_opens_and_closes_during_a_look_is_no_damage(
    victim: Victim, is_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading of ``CLOSED`` and that of the journal."""
    if is_closed:
        victim.close()
    replay, lives = disk_snapshot.replay_journal, iter([_open, _open])

    def replay_after_a_life(*given: Any) -> Any:
        for life in lives:
            asyncio.run(life(victim.root))
            break
        return replay(*given)

    monkeypatch.setattr(disk_snapshot, "replay_journal", replay_after_a_life)
    seen = disk_snapshot.take_snapshot(victim.root)
    seen.files.close()
    assert isinstance(seen.closed, CleanClose)
    assert seen.closed.journal.path == seen.journal.path


def test_nor_is_one_that_does_so_after_the_look(victim: Victim) -> None:
    victim.close()
    check = begin_check(victim.root)
    assert isinstance(check, DiskCheck)
    asyncio.run(_open(victim.root))
    with contextlib.closing(check.seen.files):
        report = asyncio.run(check.run(victim.root, lambda *_: None))
    assert not [each for each in report.damages if each.kind is DiskDamageKind.CLOSED_DIFFERS]


async def changed_at_random(path: Path, random: Random) -> None:
    """Writes, overwrites, cuts, checkpoints, flushes and compactions, in any order."""
    async with await Disk.open(path, OPTIONS) as disk:
        for _ in range(30):
            partition = await disk.partition(f"p{random.randrange(2)}")
            last, floor = partition.last, partition.checkpoint_index
            choice = random.randrange(10)
            if choice < 5:
                epoch = max(1, partition.epoch + (random.random() < 0.2))
                await partition.append([b"x" * random.randrange(30)] * 7, epoch=epoch)
            elif choice == 5 and last > floor:
                previous = random.randrange(floor, last)
                new = Entries.following(previous, partition.epoch + 1, [b"new"] * 3)
                await partition.write(previous, new)
            elif choice == 6 and last > floor:
                await partition.truncate(random.randrange(floor, last))
            elif choice == 7 and last > floor:
                index = random.randrange(floor, last) + 1
                kept = [each for each in partition.indexes.limit(index) if random.random() < 0.3]
                live = IndexSet.of(
                    [each for each in kept if each > floor or each in partition.live]
                )
                await partition.checkpoint(index, b"state", live)
            elif choice == 8:
                await disk.flush()
            else:
                await partition.compact()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_was_done_it_is_told_as_the_next_opening_finds_it(
    tmp_path: Path, seed: int
) -> None:
    random = Random(seed)

    async def opened() -> list[tuple[int, ...]]:
        async with await Disk.open(tmp_path, OPTIONS) as disk:
            partitions = [await disk.partition(name) for name in disk.partitions()]
            return [
                (each.first, each.last, each.epoch, each.checkpoint, len(each.live))
                for each in (partition.status() for partition in partitions)
            ]

    for _ in range(3):
        asyncio.run(changed_at_random(tmp_path, random))
        report = checked(tmp_path)
        assert report.clean, report.damages
        told = [
            (each.first, each.last, each.epoch, each.checkpoint, each.live)
            for each in inspected(tmp_path).partitions
        ]
        assert told == asyncio.run(opened())


@contextmanager
def busy_node(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(BUSY_NODE), str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as node:
        assert node.stdout is not None
        assert node.stdin is not None
        try:
            assert node.stdout.readline() == b"busy\n"
            yield node
            node.stdin.close()
            assert node.wait(60) == 0
        finally:
            node.kill()


@pytest.mark.parametrize("held_max", [disk_snapshot.FILES_HELD_MAX, 1])
def test_beside_a_node_that_writes_flushes_checkpoints_and_compacts_nothing_seems_damaged(
    tmp_path: Path, held_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if there are more files than can be held open at once."""
    monkeypatch.setattr(disk_snapshot, "FILES_HELD_MAX", held_max)
    lasts = []
    with busy_node(tmp_path) as node:
        for _ in range(15):
            report = checked(tmp_path)
            assert report.clean, report.damages
            assert report.remarks == ()
            lasts.append(sum(each.last for each in inspected(tmp_path).partitions))
            assert node.poll() is None
    assert lasts == sorted(lasts)
    assert lasts[-1] > lasts[0], "the node went on meanwhile"
    assert checked(tmp_path).clean


async def _open(path: Path) -> None:
    async with await Disk.open(path, OPTIONS):
        pass
