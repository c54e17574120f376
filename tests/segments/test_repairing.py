"""Repairing: what is whole stays, what is given up is said before, and nothing is deleted."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from random import Random

import pytest

from segments.damaged_disks import (
    OPTIONS,
    PLANTERS,
    Planter,
    Victim,
    last_batch_after_a_clean_close,
)
from segments.power import play
from segments.states import Shown, State, opened_shows, shown_by, states, tiny
from segments.test_every_flip import Damage, all_files, cuts, flips
from stratalog.errors import Conflict, Corrupt, NotFound
from stratalog.segments import Disk, RepairReport, repair_disk
from stratalog.segments.io.files import LocalFiles
from stratalog.segments.repair.plan import refusal
from stratalog.segments.repair.salvage_journal import salvage_journals
from stratalog.testing import SimulatedFiles, Simulation, simulate


def repaired(files: SimulatedFiles, *, accept_loss: bool = True) -> RepairReport:
    found: list[RepairReport] = []

    async def main(simulation: Simulation) -> None:
        runtime = simulation.runtime
        found.append(await repair_disk(files, accept_loss=accept_loss, runtime=runtime))

    simulate(main, 77)
    return found[0]


def is_part_of(shown: Shown, whole: Shown) -> bool:
    """Each partition has a beginning of its log, or what its checkpoint keeps, and none is new."""
    return all(
        name in whole and log.items() <= whole[name][0].items() for name, (log, _) in shown.items()
    )


@pytest.fixture(params=[name for name in states() if not name.startswith("fresh")])
def state(request: pytest.FixtureRequest) -> State:
    return states()[request.param]


def test_whatever_is_refused_can_be_repaired(state: State) -> None:
    random = Random(state.name)
    damages = [*list(flips(state))[random.randrange(37) :: 37], *list(cuts(state))[::11]]
    with tiny():
        for damage in damages:
            damaged = damage.on(state.files)
            if refusal(damaged.after_kill()) and has_whole_journal(state, damage, damaged):
                must_be_repaired(state, damage, damaged)


def has_whole_journal(state: State, damage: Damage, damaged: SimulatedFiles) -> bool:
    """Whether there is a first record. If not, nothing can be saved, and nothing is changed."""
    if salvage_journals(damaged.after_kill()) is not None:
        return True
    assert damage.path.startswith("journal/")
    assert state.is_of_format_1 or not damage.mask
    before = all_files(damaged)
    with pytest.raises(Corrupt, match="first record"):
        repaired(damaged)
    assert all_files(damaged) == before
    return False


def must_be_repaired(state: State, damage: Damage, damaged: SimulatedFiles) -> None:
    before = all_files(damaged)
    told = repaired(damaged, accept_loss=False)
    assert all_files(damaged) == before, damage
    report = repaired(damaged)
    assert (report.losses, report.refused) == (told.losses, told.refused), damage
    now = all_files(damaged)
    assert set(before.values()) <= {*now.values(), before.get("DISK")}, damage
    assert refusal(damaged.after_kill()) == "", damage
    shown = opened_shows(damaged.after_kill())
    is_journal_cut = damage.path.startswith("journal/") and not damage.mask
    assert is_part_of(shown, state.shown) or is_journal_cut, damage  # a removal may be lost too
    if not report.losses:
        assert shown == state.shown, damage
    for name, (log, _) in state.shown.items():
        lost = log.keys() - (shown[name][0].keys() if name in shown else set())
        firsts = [each.first for each in report.losses if each.partition == name]
        is_told = any(first is None or first <= min(lost) for first in firsts) if lost else True
        assert is_told or any(each.partition is None for each in report.losses), damage


def test_a_repair_that_loses_its_power_is_repeated() -> None:
    """At every call. Nothing is lost that it would have kept."""
    state = states()["two_wal_files-crashed"]
    (wal, *_) = state.layout().wals
    damaged = Damage(wal.path, 130, 4).on(state.files)
    with tiny():
        whole = damaged.after_kill()
        losses = repaired(whole).losses
        expected, calls = opened_shows(whole.after_kill()), len(whole.calls)
        for number in range(1, calls):
            files = damaged.after_kill()
            files.crash_at(number, "torn")
            play(files, partial(broken_off, files), seed=5)
            if not files.dead:
                continue
            survivor = files.after_power_loss(Random(number))
            again = repaired(survivor)
            assert again.losses in (losses, ()), number
            assert opened_shows(survivor.after_kill()) == expected, number


async def broken_off(files: SimulatedFiles, simulation: Simulation) -> None:
    await repair_disk(files, accept_loss=True, runtime=simulation.runtime)


@pytest.mark.parametrize("planter", PLANTERS, ids=lambda planter: str(planter.__name__))
def test_each_kind_of_damage(tmp_path: Path, planter: Planter) -> None:
    victim = Victim(tmp_path / "data")
    whole = asyncio.run(shown(victim.root))
    victim = Victim(tmp_path / "damaged")
    planter(victim)
    if not refusal(LocalFiles(victim.root)):
        return
    with pytest.raises(Corrupt) as refused:
        asyncio.run(shown(victim.root, reads=False))
    assert "stratalog disk repair" in refused.value.hint
    if planter.__name__ == "no_journal":
        with pytest.raises(Corrupt, match="no journal"):
            asyncio.run(repair_disk(victim.root, accept_loss=True))
        return
    assert not asyncio.run(repair_disk(victim.root)).done
    report = asyncio.run(repair_disk(victim.root, accept_loss=True))
    assert report.done
    assert report.refused
    now = asyncio.run(shown(victim.root, reads=False))
    assert is_part_of(now, whole)
    assert report.losses or now.keys() == whole.keys()


async def shown(root: Path, *, reads: bool = True) -> Shown:
    async with await Disk.open(root, OPTIONS) as disk:
        return await shown_by(disk) if reads else {name: ({}, None) for name in disk.partitions()}


def test_what_is_kept_aside_is_removed_once_a_person_has_looked(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    victim.flip(victim.wal, victim.frames(victim.wal)[-1] + 1)
    asyncio.run(shown(tmp_path))
    told = asyncio.run(repair_disk(tmp_path))
    assert (told.refused, told.done, len(told.removed)) == ("", False, 1)
    assert (tmp_path / told.removed[0]).exists()
    done = asyncio.run(repair_disk(tmp_path, accept_loss=True))
    assert done.removed == told.removed
    assert not (tmp_path / told.removed[0]).exists()
    assert asyncio.run(repair_disk(tmp_path)).removed == ()


@pytest.mark.parametrize("accept_loss", [False, True])
def test_a_running_node_is_left_alone(tmp_path: Path, accept_loss: bool) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path, OPTIONS):
            with pytest.raises(Conflict, match="has this data directory open") as refused:
                await repair_disk(tmp_path, accept_loss=accept_loss)
            assert "stratalog disk check" in refused.value.hint

    asyncio.run(main())


def test_a_copy_without_a_lock_is_looked_at_without_making_one(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    victim.remove("LOCK")
    asyncio.run(repair_disk(tmp_path))
    assert not (tmp_path / "LOCK").exists()


def test_what_is_no_data_directory_is_not_repaired(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(NotFound):
            asyncio.run(repair_disk(path))
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_says_what_a_repair_would_give_up(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    victim.flip_after(victim.wal, b"order 6")
    with pytest.raises(Corrupt) as refused:
        asyncio.run(shown(tmp_path))
    assert "`stratalog disk repair DIR --accept-loss`" in refused.value.hint
    assert "'orders', from 61 on" in refused.value.hint


@pytest.mark.parametrize("size", [1, 2])
def test_after_a_clean_close_it_says_what_the_last_batches_had(tmp_path: Path, size: int) -> None:
    victim = Victim(tmp_path)
    victim.close()
    for place in range(65, 65 - size, -1):
        victim.write(victim.wal, victim.read(victim.wal).replace(b"order %d" % place, b"order XX"))
    with pytest.raises(Corrupt) as refused:
        asyncio.run(shown(tmp_path))
    assert f"'orders', from {66 - size} on" in refused.value.hint
    assert "unknown" not in refused.value.hint


def test_a_last_batch_that_says_nothing_any_more_is_told_by_its_number(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    last_batch_after_a_clean_close(victim)
    (loss,) = asyncio.run(repair_disk(tmp_path)).losses
    assert loss.partition is None
    assert re.match(r"batches \d+, of unknown partitions: ", str(loss))


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_damaged_head_of_a_wal_file_costs_nothing(tmp_path: Path, is_closed: bool) -> None:
    victim = Victim(tmp_path)
    if is_closed:
        victim.close()
    victim.flip(victim.wal, 50)
    report = asyncio.run(repair_disk(tmp_path, accept_loss=True))
    assert (report.losses, bool(report.refused)) == ((), True)
    now = asyncio.run(shown(tmp_path))
    assert now["orders"][0][65] == (2, b"order 65")
