"""`scrub`: what it tells about a good log and about a damaged one, and how it goes on."""

from __future__ import annotations

import json
import os
import pty
import uuid
from pathlib import Path
from typing import Any

import pytest

import stratalog as sl
from cli.calls import TIMEOUT_S, call, call_json, error_json, new_log, new_url, run, start
from objectlog.planted_damage import (
    FRAGMENTS,
    PLANTERS,
    RECORDS,
    Victim,
    a_cursor_below_the_start,
    a_flipped_bit_of_a_body,
    a_missing_fragment,
    a_missing_snapshot,
)
from stratalog import ScrubOptions
from stratalog.errors import Unavailable
from stratalog.objectlog import check as scrubbing
from stratalog.objectlog.check.damage import DamageKind
from stratalog.objectlog.check.scrub_report import ScrubReport

CORRUPT = 13


def planted(*names: object) -> tuple[str, Victim]:
    """A log in memory with some damage."""
    url = new_url()

    async def work() -> Victim:
        victim = await Victim.make(sl.open_store(url))
        for planter in names:
            await planter(victim)  # type: ignore[operator]
        return victim

    return url, run(work())


def damaged_json(*args: str) -> Any:
    return json.loads(call("scrub", *args, "--json", code=CORRUPT).stdout)


def test_a_good_log_is_clean() -> None:
    url = new_log(b"one", b"two")
    assert call("scrub", url).stdout.splitlines()[0] == url
    assert "clean: 2 records in 1 fragment (" in call("scrub", url).stdout
    report = call_json("scrub", url)
    assert (report["url"], report["clean"], report["finished"]) == (url, True, True)
    assert (report["records"], report["fragments"], report["snapshots"]) == (2, 1, 0)
    assert (report["first_offset"], report["next_offset"]) == (1, 3)
    assert (report["damages"], report["remarks"]) == ([], [])


def test_damages_are_told_with_their_path_their_kind_and_what_they_mean() -> None:
    url, victim = planted(a_missing_fragment, a_flipped_bit_of_a_body)
    report = damaged_json(url)
    assert report["clean"] is False
    first, second = report["damages"]
    assert (first["kind"], first["path"]) == ("fragment-missing", victim.fragments[1].path)
    assert (first["start"], first["limit"]) == (4, 7)
    assert second["kind"] == "fragment-sum"
    assert second["meaning"] == DamageKind.FRAGMENT_SUM.meaning
    assert second["expected"] == victim.fragments[7].setsum.hexdigest()
    text = call("scrub", url, code=CORRUPT).stdout
    for word in ("fragment-missing", "4 to 6", first["path"], first["meaning"], first["remedy"]):
        assert word in text
    assert "2 damages; examined 24 records in 8 fragments" in text


def test_a_remark_is_told_and_is_no_damage() -> None:
    url, _ = planted(a_cursor_below_the_start)
    text = call("scrub", url).stdout
    assert "cursor-below-start" in text
    assert "clean: " in text
    assert [each["kind"] for each in call_json("scrub", url)["remarks"]] == ["cursor-below-start"]


@pytest.mark.parametrize("name", PLANTERS)
def test_every_damage_can_be_drawn(name: str) -> None:
    kind, planter = PLANTERS[name]
    url, _ = planted(planter)
    assert kind.value in call("scrub", url, code=0 if kind.is_remark else CORRUPT).stdout


def test_a_place_without_a_log_is_not_found() -> None:
    assert error_json("scrub", new_url(), code=3)["kind"] == "not-found"


def test_only_objects_are_looked_for_without_bodies() -> None:
    url, _ = planted(a_flipped_bit_of_a_body)
    assert call_json("scrub", url, "--no-bodies")["clean"] is True
    damaged_json(url)


def test_a_log_in_a_directory_may_be_scrubbed_by_other_processes(tmp_path: Path) -> None:
    url = str(tmp_path / "log")
    call("append", url, input=b"", code=3)
    call("init", url)
    call("append", url, input=b"x\n" * 1000)
    assert call_json("scrub", url, "--processes", "1")["records"] == 1000
    refused = error_json("scrub", new_log(), "--processes", "2", code=2)
    assert "processes" in refused["hint"]


class TestRepair:
    def test_a_snapshot_is_rebuilt_and_the_log_is_clean_after_it(self) -> None:
        url, victim = planted(a_missing_snapshot)
        damaged_json(url)
        report = call_json("scrub", url, "--repair")
        assert [each["path"] for each in report["repaired"]] == [victim.flat.path]
        assert report["not_repaired"] == []
        assert call_json("scrub", url)["records"] == RECORDS

    def test_what_cannot_be_repaired_is_told_with_the_reason(self) -> None:
        url, victim = planted(a_missing_snapshot, a_missing_fragment)
        text = call("scrub", url, "--repair", code=CORRUPT).stdout
        assert f"rebuilt {victim.flat.path} as snapshot/SNAPSHOT." in text
        assert f"not repaired (fragment-missing) {victim.fragments[1].path}: Restore" in text
        report = damaged_json(url)
        assert [each["kind"] for each in report["damages"]] == ["fragment-missing"]

    def test_nothing_is_changed_without_being_asked(self) -> None:
        url, _ = planted(a_missing_snapshot)
        assert damaged_json(url) == damaged_json(url)


class TestResume:
    @pytest.fixture
    def interrupted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next scrub loses its store when half of it is done."""
        real = scrubbing.scrub

        async def cut_short(url: str, *, on_progress: Any, **options: Any) -> ScrubReport:
            seen = 0

            def stop(report: ScrubReport) -> None:
                nonlocal seen
                seen += 1
                on_progress(report)
                if seen == FRAGMENTS // 2:
                    monkeypatch.undo()
                    raise Unavailable("the network is gone")

            options["options"] = ScrubOptions(processes=0, fragments_max=1)
            return await real(url, on_progress=stop, **options)

        monkeypatch.setattr(scrubbing, "scrub", cut_short)

    @pytest.mark.usefixtures("interrupted")
    def test_an_interrupted_scrub_goes_on_from_its_file(self, tmp_path: Path) -> None:
        url, victim = planted(a_missing_fragment, a_flipped_bit_of_a_body)
        file = tmp_path / "scrub.json"
        assert error_json("scrub", url, "--resume", str(file), code=11)["kind"] == "unavailable"
        kept = json.loads(file.read_bytes())
        assert kept["next_offset"] == 13
        assert [each["kind"] for each in kept["damages"]] == ["fragment-missing"]
        report = damaged_json(url, "--resume", str(file))
        assert report["records"] == RECORDS - 3
        assert [each["path"] for each in report["damages"]] == [
            victim.fragments[1].path,
            victim.fragments[7].path,
        ]
        assert list(tmp_path.iterdir()) == [], "a finished scrub leaves no file"

    def test_a_scrub_that_finishes_at_once_leaves_no_file(self, tmp_path: Path) -> None:
        url, _ = planted()
        assert call_json("scrub", url, "--resume", str(tmp_path / "file"))["clean"] is True
        assert list(tmp_path.iterdir()) == []

    def test_a_file_that_is_something_else_is_refused_and_kept(self, tmp_path: Path) -> None:
        file = tmp_path / "precious"
        file.write_bytes(b"something else")
        refused = error_json("scrub", new_log(), "--resume", str(file), code=2)
        assert str(file) in refused["message"]
        assert file.read_bytes() == b"something else"

    def test_a_directory_that_is_not_there_is_told_before_anything_is_read(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "none" / "scrub.json"
        refused = error_json("scrub", new_log(b"one"), "--resume", str(file), code=3)
        assert refused["message"] == f"there is no directory {file.parent}"
        assert "Create it first" in refused["hint"]
        assert error_json("scrub", new_log(), "--resume", str(tmp_path), code=2)["message"]

    @pytest.mark.usefixtures("interrupted")
    def test_the_file_of_another_log_is_refused_and_kept(self, tmp_path: Path) -> None:
        file = tmp_path / "scrub.json"
        call("scrub", planted()[0], "--resume", str(file), code=11)
        before = file.read_bytes()
        assert (
            "report of" in error_json("scrub", new_log(), "--resume", str(file), code=2)["message"]
        )
        assert file.read_bytes() == before


def test_progress_is_shown_on_a_terminal_only(tmp_path: Path) -> None:
    url = str(tmp_path / uuid.uuid4().hex)
    call("init", url)
    call("append", url, input=b"x" * 1000 + b"\n")
    terminal, inner = pty.openpty()
    try:
        with start("scrub", url, stderr=inner) as program:
            out, _ = program.communicate(timeout=TIMEOUT_S)
        shown = os.read(terminal, 100_000)
        assert program.returncode == 0
        assert b"clean: 1 record" in out
        assert b"scrubbing" in shown
        assert b"scrubbing" not in out
    finally:
        os.close(inner)
        os.close(terminal)
