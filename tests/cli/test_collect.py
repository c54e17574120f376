"""`collect`: what it tells before, while and after it deletes."""

from __future__ import annotations

import json
import os
import pty
from pathlib import Path

import pytest

import stratalog as sl
from cli.calls import TIMEOUT_S, bodies_of, call, call_json, error_json, new_url, run, start
from stratalog.objectlog.holds.cursor import StoredCursor, cursor_path
from stratalog.objectlog.stored.plan import GARBAGE_PATH, load_garbage
from stratalog.store.closing import open_json

AT_ONCE = ("--interval", "0")


def log_with_cursors(url: str, fragments: int = 5, **cursors: int) -> str:
    """A log with one record a fragment, and these cursors."""

    async def fill() -> None:
        async with sl.LogWriter.open(url, create=True) as log:
            for number in range(1, fragments + 1):
                await log.append(b"%d" % number)
        for name, offset in cursors.items():
            await sl.CursorStore(url).create(name, offset)

    run(fill())
    return url


def left_by_another(url: str, *, published: bool) -> str:
    """A collection that ended early; gives the id of its plan."""

    async def leave() -> str:
        collector = sl.Collector(url, writer="another")
        plan = await collector.compute()
        assert plan is not None
        assert plan.plan_id is not None
        if published:
            await collector.publish()
        return plan.plan_id

    return run(leave())


def paths_of(url: str) -> set[str]:
    async def listed() -> set[str]:
        return {row.path async for row in sl.open_store(url).list()}

    return run(listed())


def rewrite(url: str, path: str, data: bytes) -> None:
    """Put other bytes in the place of an object, as nobody should."""

    async def swap() -> None:
        store = sl.open_store(url)
        await store.put_if_match(path, data, (await store.get(path)).etag)

    run(swap())


class TestDryRun:
    def test_it_says_what_would_go_and_who_holds_the_rest_and_changes_nothing(self) -> None:
        url = log_with_cursors(new_url(), billing=4, audit=3)
        before = paths_of(url)
        lines = call("collect", url, "--dry-run").stdout.splitlines()
        assert [line.split() for line in lines[:3]] == [
            ["cursor", "offset"],
            ["audit", "3", "holds"],
            ["billing", "4", "further", "on"],
        ]
        facts = "\n".join(lines[4:])
        assert "cut             3, held by the cursor audit" in facts
        assert "would begin at  3" in facts
        assert "would go        2 records in 2 fragments (" in facts
        assert "under way" not in facts
        assert paths_of(url) == before

    def test_programs_get_the_same(self) -> None:
        url = log_with_cursors(new_url(), billing=4, audit=3)
        told = call_json("collect", url, "--dry-run")
        assert told.pop("fragment_bytes") > 0
        assert told == {
            "first_offset": 1,
            "cut": 3,
            "held_by": "audit",
            "first_to_keep": 3,
            "records": 2,
            "fragments": 2,
            "cursors": [
                {"name": "audit", "offset": 3, "holds": 3},
                {"name": "billing", "offset": 4, "holds": 4},
            ],
            "under_way": None,
        }

    def test_a_cursor_before_the_start_counts_only_as_far_as_it_held_something(self) -> None:
        url = log_with_cursors(new_url(), billing=4)
        call("collect", url, *AT_ONCE)
        for name, held in (("back", 5), ("late", None)):
            stored = StoredCursor(
                position=sl.LogPosition(2), epoch_us=1, writer="test", write_id="w", held=held
            )
            run(sl.open_store(url).put_if_absent(cursor_path(name), stored.to_json()))
        text = call("collect", url, "--dry-run").stdout
        assert "late          2  does not count: before the start" in text
        assert "back          2  counts as 5: its way back was cut off" in text
        assert "cut             4, held by the cursor billing" in text
        told = call_json("collect", url, "--dry-run")
        holding = {each["name"]: each["holds"] for each in told["cursors"]}
        assert holding == {"back": 5, "billing": 4, "late": None}

    def test_a_lower_cut_off_holds_the_cut(self) -> None:
        url = log_with_cursors(new_url(), billing=4)
        text = call("collect", url, "--dry-run", "--cut-off", "2").stdout
        assert "cut             2, held by the cut-off" in text
        assert "billing       4  further on" in text
        assert call_json("collect", url, "--dry-run", "--cut-off", "9")["held_by"] == "billing"

    @pytest.mark.parametrize(
        ("published", "state", "follows"),
        [(False, "live", "publishes or cancels it"), (True, "published", "finishes its deletions")],
    )
    def test_what_another_run_left_is_named_with_what_will_become_of_it(
        self, published: bool, state: str, follows: str
    ) -> None:
        url = log_with_cursors(new_url(), billing=4)
        plan_id = left_by_another(url, published=published)
        text = call("collect", url, "--dry-run").stdout
        assert f"the collection {plan_id} of another up to offset 4" in text
        assert follows in text
        assert call_json("collect", url, "--dry-run")["under_way"] == {
            "plan_id": plan_id,
            "writer": "another",
            "state": state,
            "first_to_keep": 4,
            "records": 3,
            "fragments": 3,
        }


class TestCollecting:
    def test_it_tells_what_went_and_where_the_log_begins(self, store_url: str) -> None:
        log_with_cursors(store_url, billing=4)
        lines = call("collect", store_url, *AT_ONCE).stdout.splitlines()
        assert lines[0].startswith("collected 3 records in 3 fragments (")
        assert lines[1:] == [
            "deleted 3 fragments and 0 snapshots with 1 request",
            "the log begins at offset 4, held by the cursor billing",
        ]
        assert call("read", store_url, "--from", "4").stdout == "4\n5\n"
        error_json("read", store_url, "--from", "1", code=10)

    def test_programs_get_the_same(self) -> None:
        url = log_with_cursors(new_url(), billing=4)
        told = call_json("collect", url, *AT_ONCE)
        assert told.pop("fragment_bytes") > 0
        assert told == {
            "first_offset": 4,
            "records": 3,
            "fragments": 3,
            "removed": {"fragments": 3, "snapshots": 0, "requests": 1},
            "held_by": "billing",
            "ended": None,
        }

    def test_nothing_to_collect_says_who_holds_it_there(self) -> None:
        url = log_with_cursors(new_url(), billing=1)
        assert call("collect", url).stdout.splitlines() == [
            "nothing to collect",
            "the log begins at offset 1, held by the cursor billing",
        ]

    @pytest.mark.parametrize("published", [False, True])
    def test_what_another_run_left_is_ended_first(self, published: bool) -> None:
        url = log_with_cursors(new_url(), billing=4)
        plan_id = left_by_another(url, published=published)
        call("cursor", "move", url, "billing", "5")
        text = call("collect", url, *AT_ONCE).stdout
        assert f"ended the collection {plan_id} of another up to offset 4" in text
        assert "collected 1 record in 1 fragment" in text
        assert "deleted 4 fragments" in text
        assert run(load_garbage(sl.open_store(url)))[0].is_empty  # type: ignore[union-attr]

    def test_the_plan_that_was_ended_is_told_to_programs(self) -> None:
        url = log_with_cursors(new_url(), billing=4)
        plan_id = left_by_another(url, published=True)
        told = call_json("collect", url, *AT_ONCE)
        assert (told["ended"], told["removed"]["fragments"]) == (plan_id, 3)

    def test_a_cut_off_keeps_more_than_the_cursors_do(self) -> None:
        url = log_with_cursors(new_url(), billing=4)
        call("collect", url, "--cut-off", "2", *AT_ONCE)
        assert call("read", url, "--from", "2").stdout == "2\n3\n4\n5\n"

    def test_progress_is_shown_while_it_waits_and_deletes(self, tmp_path: Path) -> None:
        url = log_with_cursors(str(tmp_path / "log"), billing=4)
        terminal, inner = pty.openpty()
        try:
            with start("collect", url, "--interval", "0.5", stderr=inner) as program:
                out, _ = program.communicate(timeout=TIMEOUT_S)
            shown = os.read(terminal, 100_000)
        finally:
            os.close(inner)
            os.close(terminal)
        assert program.returncode == 0
        assert b"deletes 0.5 s after publishing" in shown
        assert b"0/3" in shown
        assert out.startswith(b"collected 3 records")

    def test_the_help_names_the_interval_that_the_library_uses(self) -> None:
        text = " ".join(call("collect", "--help").stdout.replace("│", " ").split())
        assert f"Without it, {sl.CollectorOptions().interval_s:g} seconds." in text


class TestCancelling:
    def test_a_plan_that_is_not_published_is_given_up(self) -> None:
        url = log_with_cursors(new_url(), billing=4)
        plan_id = left_by_another(url, published=False)
        text = call("collect", url, "--cancel").stdout
        assert text == (
            f"cancelled the collection {plan_id} of another up to offset 4; nothing was deleted\n"
        )
        assert len(bodies_of(url)) == 5
        assert call("collect", url, "--cancel").stdout == "no collection is under way\n"

    def test_programs_get_the_plan(self) -> None:
        url = log_with_cursors(new_url(), billing=4)
        plan_id = left_by_another(url, published=False)
        assert call_json("collect", url, "--cancel") == {"cancelled": plan_id}
        assert call_json("collect", url, "--cancel") == {"cancelled": None}

    def test_a_published_one_is_not(self) -> None:
        url = log_with_cursors(new_url(), billing=4)
        left_by_another(url, published=True)
        assert error_json("collect", url, "--cancel", code=5)["kind"] == "conflict"

    @pytest.mark.parametrize("other", [["--dry-run"], ["--cut-off", "3"]])
    def test_it_stands_alone(self, other: list[str]) -> None:
        url = log_with_cursors(new_url(), billing=4)
        assert "--cancel" in error_json("collect", url, "--cancel", *other, code=2)["message"]


class TestErrors:
    @pytest.mark.parametrize("how", [[], ["--dry-run"]])
    def test_a_log_without_a_cursor_is_refused_with_how_to_make_one(self, how: list[str]) -> None:
        url = log_with_cursors(new_url())
        error = error_json("collect", url, *how, code=2)
        assert "stratalog cursor create" in error["hint"]
        assert len(bodies_of(url)) == 5

    def test_no_log_is_not_found(self) -> None:
        for how in ([], ["--dry-run"]):
            assert error_json("collect", new_url(), *how, code=3)["kind"] == "not-found"

    @pytest.mark.parametrize(
        "wrong", [["--cut-off", "0"], ["--interval", "-1"], ["--interval", "nan"]]
    )
    def test_a_value_that_cannot_be_is_refused(self, wrong: list[str]) -> None:
        error_json("collect", log_with_cursors(new_url(), billing=4), *wrong, code=2)

    def test_a_plan_that_does_not_balance_stops_before_anything_is_lost(self) -> None:
        url = log_with_cursors(new_url(), billing=4)
        left_by_another(url, published=False)
        stored = json.loads(open_json(run(sl.open_store(url).get(GARBAGE_PATH)).data, None))
        stored["setsum_to_discard"] = sl.Setsum.of(b"other").hexdigest()
        rewrite(url, GARBAGE_PATH, json.dumps(stored).encode())
        error = error_json("collect", url, *AT_ONCE, code=13)
        assert error["path"] == GARBAGE_PATH
        assert "stratalog collect --cancel" in error["hint"]
        call("collect", url, "--cancel")
        assert call_json("collect", url, *AT_ONCE)["records"] == 3

    def test_a_plan_that_is_no_plan_is_corrupt(self) -> None:
        url = log_with_cursors(new_url(), billing=4)
        left_by_another(url, published=False)
        rewrite(url, GARBAGE_PATH, b"{}")
        for how in ([], ["--dry-run"], ["--cancel"]):
            assert error_json("collect", url, *how, code=13)["path"] == GARBAGE_PATH
