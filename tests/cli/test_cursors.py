"""`cursor`: named positions from the shell."""

from __future__ import annotations

import pytest

import stratalog as sl
from cli.calls import call, call_json, error_json, new_log
from stratalog.objectlog.holds.cursor import Cursor


def test_a_cursor_lives_from_create_to_delete() -> None:
    url = new_log(b"a", b"b", b"c")
    assert call_json("cursor", "list", url) == []
    assert call("cursor", "list", url).stdout == "there are no cursors\n"
    created = call_json("cursor", "create", url, "mine", "1")
    assert (created["done"], created["name"], created["offset"]) == ("created", "mine", 1)
    assert call("cursor", "move", url, "mine", "3").stdout == "moved the cursor mine to offset 3\n"
    (listed,) = call_json("cursor", "list", url)
    assert (listed["name"], listed["offset"]) == ("mine", 3)
    assert listed["epoch_us"] > 0
    assert listed["writer"]
    assert "mine" in call("cursor", "list", url).stdout
    call("cursor", "delete", url, "mine")
    assert call_json("cursor", "list", url) == []


def test_a_cursor_is_created_once_and_moves_only_if_it_is_there() -> None:
    url = new_log(b"a")
    call("cursor", "create", url, "mine", "1")
    assert error_json("cursor", "create", url, "mine", "1", code=4)["kind"] == "exists"
    assert error_json("cursor", "move", url, "other", "1", code=3)["kind"] == "not-found"


@pytest.mark.parametrize("change", [["move", "{url}", "mine", "2"], ["delete", "{url}", "mine"]])
def test_a_cursor_that_is_not_where_it_was_expected_stays(change: list[str]) -> None:
    url = new_log(b"a", b"b")
    call("cursor", "create", url, "mine", "1")
    command = [part.format(url=url) for part in change]
    error = error_json("cursor", *command, "--expected-offset", "2", code=5)
    assert (error["kind"], error["expected"], error["actual"]) == ("conflict", 2, 1)
    assert "stratalog cursor list" in error["hint"]
    assert call_json("cursor", "list", url)[0]["offset"] == 1
    call("cursor", *command, "--expected-offset", "1")


def test_a_change_in_between_is_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_log(b"a", b"b", b"c")
    call("cursor", "create", url, "mine", "1")
    move = Cursor.move

    async def overtaken(self: Cursor, offset: int) -> Cursor:
        await move(await sl.CursorStore(url).load("mine"), 2)
        return await move(self, offset)

    monkeypatch.setattr(Cursor, "move", overtaken)
    assert error_json("cursor", "move", url, "mine", "3", code=5)["kind"] == "conflict"
    assert call_json("cursor", "list", url)[0]["offset"] == 2


def test_a_name_that_is_not_one_is_refused() -> None:
    assert error_json("cursor", "create", new_log(), "a/b", "1", code=2)["kind"] == "invalid"
