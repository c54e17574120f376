"""`herd`: many logs under one root, from the shell."""

from __future__ import annotations

from pathlib import Path

import stratalog as sl
from cli.calls import call, call_json, error_json, run


def test_logs_are_created_listed_and_used(tmp_path: Path) -> None:
    root = str(tmp_path / "herd")
    assert call("herd", "create", root, "orders").stdout.startswith("created the log orders at ")
    created = call_json("herd", "create", root, "refunds")
    assert call_json("herd", "list", root) == ["orders", "refunds"]
    assert call("herd", "list", root).stdout == "orders\nrefunds\n"
    assert call_json("herd", "where", root, "refunds") == created
    place = call("herd", "where", root, "orders").stdout.strip()
    call("append", place, input=b"one\n")
    assert call("read", place).stdout == "one\n"
    assert error_json("herd", "create", root, "orders", code=4)["kind"] == "exists"
    assert error_json("herd", "where", root, "nobody", code=3)["kind"] == "not-found"


def test_dirty_logs_are_found(tmp_path: Path) -> None:
    root = str(tmp_path / "herd")

    async def write() -> str:
        async with sl.Herd.open(root, server="a") as herd:
            await herd.create("idle")
            log = await herd.create("busy")
            await log.append_many([b"x"] * 20)
            return await log.id()

    log_id = run(write())
    shown = call("herd", "dirty", root, "--records", "20").stdout
    assert log_id in shown
    assert "1 dirty log, 1 selected; 0 clean, 0 gone; 1 mark read" in shown
    found = call_json("herd", "dirty", root, "--age", "1h")
    assert [(each["log_id"], each["reason"]) for each in found["dirty"]] == [(log_id, None)]
