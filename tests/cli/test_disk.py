"""`disk`: what it tells of a node's data directory, whole and damaged."""

from __future__ import annotations

import asyncio
import json
import os
import pty
from pathlib import Path

import pytest

from cli.calls import TIMEOUT_S, call, call_json, error_json, start
from segments.damaged_disks import (
    PLANTERS,
    Planter,
    Victim,
    an_entry,
    last_batch,
    live_file,
    no_segment,
    wal_in_the_middle,
)
from stratalog.cli.commands.disk import picture
from stratalog.segments import Disk, DiskDamageKind, SegmentReport

CORRUPT = 13


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    return Victim(tmp_path / "data")


def segment(entries: int, alive: int) -> SegmentReport:
    return SegmentReport("seg/x", 1, entries, entries, 1000, alive, 10 * alive)


class TestInfo:
    def test_partitions_are_shown_with_their_place_their_checkpoint_and_what_lives(
        self, victim: Victim
    ) -> None:
        text = call("disk", "info", str(victim.root)).stdout
        lines = text.splitlines()
        assert lines[0].startswith(f"{victim.root}: disk ")
        assert "1 file of 16.0 KiB with 5 entries not yet in segments" in lines[1]
        orders = next(line for line in lines if line.startswith("orders "))
        for cell in ("41 to 65", "40 (", "43 %"):
            assert cell in orders
        users = next(line for line in lines if line.startswith("users "))
        assert "1 to 10" in users
        assert "100 %" in users

    def test_segments_are_drawn_by_how_much_of_them_lives(self, victim: Victim) -> None:
        lines = call("disk", "info", str(victim.root)).stdout.splitlines()
        assert "orders  ░░█" in lines
        assert "users   █" in lines

    def test_leftovers_are_named(self, victim: Victim) -> None:
        victim.write("seg/left.seg", b"by a crash")
        text = call("disk", "info", str(victim.root)).stdout
        assert "1 file that no record names" in text
        assert "  seg/left.seg" in text

    def test_the_json_form_is_stable(self, victim: Victim) -> None:
        report = call_json("disk", "info", str(victim.root))
        keys = "path disk format partitions wals leftovers closed doubtful"
        assert list(report) == keys.split()
        orders = report["partitions"][0]
        assert (
            list(orders)
            == (
                "name first last epoch checkpoint checkpoint_bytes live pending "
                "entries bytes live_entries live_bytes segments"
            ).split()
        )
        assert (orders["name"], orders["last"], orders["epoch"]) == ("orders", 65, 2)
        assert (orders["checkpoint"], orders["live"], orders["pending"]) == (40, 6, 5)
        assert list(orders["segments"][0]) == (
            "path first last entries bytes live_entries live_bytes".split()
        )
        assert list(report["wals"][0]) == ["path", "bytes", "batches", "entries", "is_prepared"]
        assert report == call_json("disk", "info", str(victim.root))

    def test_an_empty_directory_of_a_node_is_shown(self, tmp_path: Path) -> None:
        async def make() -> None:
            async with await Disk.open(tmp_path) as disk:
                await disk.partition("empty")

        asyncio.run(make())
        assert "up to 0" in call("disk", "info", str(tmp_path)).stdout
        assert call_json("disk", "check", str(tmp_path))["clean"] is True

    def test_what_is_damaged_has_the_exit_code_of_damage(self, victim: Victim) -> None:
        path = no_segment(victim)
        told = error_json("disk", "info", str(victim.root), code=CORRUPT)
        assert (told["kind"], told["message"]) == ("corrupt", f"{path} is missing")
        assert "stratalog disk check" in told["hint"]


class TestPicture:
    def test_each_share_has_its_mark(self) -> None:
        shares = [0, 1, 33, 34, 66, 67, 99, 100]
        assert picture([segment(100, share) for share in shares]) == "·░░▒▒▓▓█"

    def test_very_many_segments_share_marks(self) -> None:
        drawn = picture([segment(10, 10)] * 600 + [segment(10, 0)] * 600)
        assert drawn == "█" * 30 + "·" * 30


class TestCheck:
    def test_a_good_directory_is_clean(self, victim: Victim) -> None:
        text = call("disk", "check", str(victim.root)).stdout
        assert "clean: 75 entries in 4 segments and 1 WAL file (" in text
        report = call_json("disk", "check", str(victim.root))
        assert (
            list(report)
            == (
                "path clean damages remarks leftovers partitions segments wals entries bytes gone"
            ).split()
        )
        assert (report["clean"], report["entries"], report["damages"]) == (True, 75, [])

    def test_damage_is_told_with_its_place_its_meaning_and_the_next_step(
        self, victim: Victim
    ) -> None:
        paths = [an_entry(victim), wal_in_the_middle(victim)]
        text = call("disk", "check", str(victim.root), code=CORRUPT).stdout
        for word in (*paths, "entry 21", "byte 64", "orders", "next: Keep the file.", "2 damages;"):
            assert word in text
        done = call("disk", "check", str(victim.root), "--json", code=CORRUPT)
        damages = json.loads(done.stdout)["damages"]
        assert [each["kind"] for each in damages] == ["entry-damaged", "wal-damaged"]
        assert list(damages[0]) == (
            "kind path partition index count byte detail meaning remedy".split()
        )
        assert (damages[0]["index"], damages[0]["partition"]) == (21, "orders")

    def test_a_remark_is_told_and_is_no_damage(self, victim: Victim) -> None:
        live_file(victim)
        text = call("disk", "check", str(victim.root)).stdout
        assert "live-file-unreadable" in text
        assert "clean: " in text

    @pytest.mark.parametrize("planter", PLANTERS, ids=lambda planter: str(planter.__name__))
    def test_every_damage_can_be_drawn(self, victim: Victim, planter: Planter) -> None:
        planter(victim)
        kind: DiskDamageKind = PLANTERS[planter]
        code = 0 if kind.is_remark else CORRUPT
        assert kind.value in call("disk", "check", str(victim.root), code=code).stdout

    def test_progress_is_shown_on_a_terminal_only(self, victim: Victim) -> None:
        terminal, inner = pty.openpty()
        try:
            with start("disk", "check", str(victim.root), stderr=inner) as program:
                out, _ = program.communicate(timeout=TIMEOUT_S)
            shown = os.read(terminal, 100_000)
            assert program.returncode == 0
            assert b"checking" in shown
            assert b"checking" not in out
        finally:
            os.close(inner)
            os.close(terminal)


@pytest.mark.parametrize("command", ["info", "check"])
class TestWrongPlaces:
    def test_a_place_without_a_data_directory_is_not_found(
        self, tmp_path: Path, command: str
    ) -> None:
        told = error_json("disk", command, str(tmp_path / "none"), code=3)
        assert told["message"] == f"there is no directory {tmp_path / 'none'}"
        told = error_json("disk", command, str(tmp_path), code=3)
        assert "not a data directory" in told["message"]
        assert "stratalog info" in told["hint"]
        assert list(tmp_path.iterdir()) == []

    def test_a_file_is_no_data_directory(self, tmp_path: Path, command: str) -> None:
        (tmp_path / "file").touch()
        assert "is a file" in error_json("disk", command, str(tmp_path / "file"), code=2)["message"]

    def test_the_help_teaches(self, command: str) -> None:
        text = call("disk", command, "--help").stdout
        assert f"stratalog disk {command} " in text.split("Example")[1]
        assert "--json" in text


class TestRepair:
    def test_a_whole_directory_needs_none(self, victim: Victim) -> None:
        assert "nothing to repair" in call("disk", "repair", str(victim.root)).stdout
        facts = call_json("disk", "repair", str(victim.root))
        assert facts["refused"] == ""
        assert facts["losses"] == facts["moved"] == facts["removed"] == []

    def test_it_says_what_is_refused_and_given_up_and_changes_nothing(self, victim: Victim) -> None:
        wal_in_the_middle(victim)
        before = victim.read(victim.wal)
        told = call("disk", "repair", str(victim.root), code=CORRUPT).stdout
        assert f"refused: {victim.wal} is damaged" in told
        assert "would be given up:" in told
        assert "'orders', from 61 on" in told
        assert "add --accept-loss" in told
        assert victim.read(victim.wal) == before

    def test_with_accept_loss_it_does_it(self, victim: Victim) -> None:
        wal_in_the_middle(victim)
        damaged = victim.read(victim.wal)
        told = call("disk", "repair", str(victim.root), "--accept-loss").stdout
        assert told.endswith("repaired\n")
        assert victim.read(f"doubt/{victim.wal.removeprefix('wal/')}") == damaged
        facts = call_json("disk", "repair", str(victim.root))
        assert facts["refused"] == ""
        assert len(facts["removed"]) == 2
        shown = call("disk", "check", str(victim.root)).stdout
        assert "doubt-kept" in shown

    def test_doubtful_bytes_are_shown(self, victim: Victim) -> None:
        last_batch(victim)
        assert "the next opening keeps them aside" in call("disk", "info", str(victim.root)).stdout
        (doubt,) = call_json("disk", "info", str(victim.root))["doubtful"]
        assert doubt["path"] == victim.wal
        assert doubt["is_kept"] is False
