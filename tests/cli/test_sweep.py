"""`sweep`: what it tells about what goes, what is spared and what is not the log's."""

from __future__ import annotations

import stratalog as sl
from cli.calls import bodies_of, call, call_json, error_json, new_log, new_url, run
from objectlog.leftovers import everything, litter
from stratalog.objectlog.holds.upload_guard import UploadGuard, UploadGuardStore
from stratalog.store import open_store


def littered_log() -> str:
    url = new_log(b"a", b"b", b"c")
    run(litter(url))
    return url


def with_a_stage(url: str) -> str:
    """A job that has uploaded; gives its incarnation."""

    async def upload() -> str:
        stage = await UploadGuard.register(url, owner="compactor [7]", note="topic [bold]a")
        await litter(url, stage.names)
        return stage.incarnation

    return run(upload())


def test_what_nothing_links_is_deleted() -> None:
    url = littered_log()
    lines = call("sweep", url).stdout.splitlines()
    assert lines[0] == "deleted 4 objects (24 B) that nothing links"
    assert lines[1].startswith("listed 6 objects (")
    assert "the log leads to 1 object (" in lines[1]
    assert len(lines) == 2
    assert call("sweep", url).stdout.startswith("deleted 0 objects (0 B)")
    assert bodies_of(url) == [b"a", b"b", b"c"]


def test_a_dry_run_says_so_and_deletes_nothing() -> None:
    url = littered_log()
    before = run(everything(url))
    assert call("sweep", url, "--dry-run").stdout.startswith("would delete 4 objects (24 B)")
    assert run(everything(url)) == before


def test_programs_get_every_number() -> None:
    url = littered_log()
    stage = with_a_stage(url)
    run(open_store(url).put_if_absent("log/notes.txt", b"mine"))
    told = call_json("sweep", url)
    assert (told["url"], told["dry_run"], told["rounds"]) == (url, False, 1)
    assert told["epoch_after"] == told["epoch_before"] + 1
    assert told["deleted"] == {"objects": 4, "bytes": 24}
    assert told["spared"] == {stage: {"objects": 4, "bytes": 24}}
    assert told["unknown"] == {"objects": 1, "bytes": 4}
    assert told["unknown_paths"] == ["log/notes.txt"]
    assert told["pinned"]["objects"] == told["stages_removed"] == 0
    assert told["pins"] == []
    (listed,) = told["stages"]
    assert (listed["incarnation"], listed["owner"]) == (stage, "compactor [7]")
    assert listed["epoch_us"] > 0
    parts = ("reached", "pinned", "kept", "deleted", "unknown")
    count = sum(told[part]["objects"] for part in parts) + 4
    assert count == told["listed"]["objects"]


def test_pins_are_named_that_keep_something() -> None:
    url = new_log(b"a")

    async def collect_what_is_pinned() -> None:
        await sl.PinStore(url).create("backup")
        async with sl.LogWriter.open(url) as log:
            await log.append(b"b")
        await sl.CursorStore(url).create("reader", 2)
        await sl.collect(url, options=sl.CollectorOptions(interval_s=0.0))

    run(collect_what_is_pinned())
    assert ", and only pin backup to 1 object (" in call("sweep", url).stdout
    told = call_json("sweep", url)
    assert (told["pins"], told["pinned"]["objects"]) == (["backup"], 1)


def test_live_stages_are_shown_until_they_are_revoked() -> None:
    url = littered_log()
    stage = with_a_stage(url)
    text = call("sweep", url).stdout
    assert "live stage" in text
    (row,) = [line for line in text.splitlines() if line.startswith(stage)]
    assert "compactor [7]" in row
    assert "0:00:0" in row
    assert "4 objects (24 B)" in row
    assert "topic [bold]a" in row
    text = call("sweep", url, "--revoke", stage).stdout
    assert text.startswith("deleted 4 objects")
    assert "live stage" not in text


def test_a_released_stage_is_told() -> None:
    url = new_log(b"a")

    async def release() -> None:
        await (await UploadGuard.register(url)).release()

    run(release())
    assert "would delete 1 released stage" in call("sweep", url, "--dry-run").stdout
    assert "deleted 1 released stage" in call("sweep", url).stdout
    assert run(UploadGuardStore(url).list()) == []


def test_files_of_others_are_named() -> None:
    url = new_log(b"a")

    async def add() -> None:
        for number in range(12):
            await open_store(url).put_if_absent(f"notes/{number:02}", b"x")

    run(add())
    lines = call("sweep", url).stdout.splitlines()
    assert lines[2] == "left alone 12 objects (12 B) that are not the log's:"
    assert lines[3] == "  notes/00"
    assert lines[-1] == "  … 2 more"


def test_what_is_refused() -> None:
    assert error_json("sweep", new_url(), code=3)["kind"] == "not-found"
    url = littered_log()
    assert error_json("sweep", url, "--revoke", "0123456789ab", code=3)["kind"] == "not-found"
    assert error_json("sweep", url, "--revoke", "x", code=2)["kind"] == "invalid"
