"""`init`, `info` and the picture of the tree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stratalog as sl
from cli.calls import call, call_json, error_json, new_log, new_url, run
from stratalog.cli import output

OPTIONS = sl.WriterOptions(fragment_bytes=1, rollup_entries=4, snapshot_entries_max=4)


def _deep_log(records: int) -> str:
    """A log whose tree is deep, because its snapshots are small."""
    url = new_url()

    async def fill() -> None:
        async with sl.LogWriter.open(url, create=True, options=OPTIONS) as log:
            for number in range(records):
                await log.append(b"%d" % number)

    run(fill())
    return url


def test_a_log_is_created_once(tmp_path: Path) -> None:
    place = tmp_path / "log"
    assert call("init", str(place)).stdout == f"created a log at {place.as_uri()}\n"
    again = call("init", str(place), code=4)
    assert "there is already a log" in again.stderr
    assert "--exist-ok" in again.stderr
    assert call_json("init", str(place), "--exist-ok") == {"url": place.as_uri(), "created": False}


def test_an_empty_log_says_so() -> None:
    facts = call_json("info", new_log(), "--tree")
    assert (facts["first_offset"], facts["next_offset"], facts["records"]) == (1, 1, 0)
    assert facts["first_timestamp_us"] is None
    assert facts["tree"] == {"first": [], "omitted": 0, "last": []}
    assert "no records" in call("info", new_log(), "--tree").stdout


def test_info_says_what_a_log_holds() -> None:
    url = new_log(b"a", b"bc")
    facts = call_json("info", url)
    assert (facts["url"], facts["first_offset"], facts["next_offset"]) == (url, 1, 3)
    assert (facts["records"], facts["root_fragments"], facts["depth"]) == (2, 1, 0)
    assert facts["writable"] is True
    assert facts["sealed"] is False
    assert "tree" not in facts
    text = call("info", url).stdout
    assert facts["setsum"] in text
    assert not any(line != line.rstrip() for line in text.splitlines())


def _leaves(branch: Any) -> list[Any]:
    nodes = [*branch["first"], *branch["last"]]
    return [
        leaf
        for node in nodes
        for leaf in (_leaves(node["children"]) if "children" in node else [node])
    ]


def test_the_whole_tree_leads_to_every_record_once() -> None:
    url = _deep_log(60)
    facts = call_json("info", url, "--tree", "--all")
    assert facts["depth"] >= 2
    leaves = _leaves(facts["tree"])
    assert {leaf["kind"] for leaf in leaves} == {"fragment"}
    ends = [leaf["limit_offset"] for leaf in leaves]
    assert [leaf["first_offset"] for leaf in leaves] == [1, *ends[:-1]]
    assert ends[-1] == 61
    total = sum((sl.Setsum.from_hexdigest(leaf["setsum"]) for leaf in leaves), sl.Setsum())
    assert total.hexdigest() == facts["setsum"]


def test_the_tree_is_bounded_and_says_how_much_it_leaves_out() -> None:
    url = _deep_log(300)
    bounded = call("info", url, "--tree").stdout
    whole = call("info", url, "--tree", "--all").stdout
    assert "more" in bounded
    assert "…" in bounded
    assert len(bounded.splitlines()) < 150 < 300 < len(whole.splitlines())
    for picture in (bounded, whole):
        assert "fragment 1 " in picture
        assert "fragment 300 " in picture
    assert "├── " in bounded


def test_a_missing_snapshot_is_damage() -> None:
    url = _deep_log(60)

    async def lose() -> None:
        store = sl.open_store(url)
        async with sl.LogReader.open(url) as log:
            await store.delete_many([log.manifest.snapshots[0].path])

    run(lose())
    assert error_json("info", url, "--tree", code=13)["path"].startswith("snapshot/")


def test_on_a_narrow_terminal_what_is_cut_off_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    url = _deep_log(9)
    monkeypatch.setattr(output, "PIPE_WIDTH", 60)
    drawn = call("info", url, "--tree").stdout.split("manifest ")[1].splitlines()[1:]
    assert len(drawn) > 3
    for line in drawn:
        assert len(line) <= 60
        assert line.endswith("…")


def test_all_goes_with_the_tree() -> None:
    assert error_json("info", new_log(), "--all", code=2)["hint"] == "Add --tree."


def test_a_place_without_a_log_is_told() -> None:
    url = new_url()
    result = call("info", url, code=3)
    assert f"error: there is no log at {url}" in result.stderr
    assert "create it with `stratalog init`" in result.stderr
    assert json.loads(call("info", url, "--json", code=3).stderr)["exit_code"] == 3
