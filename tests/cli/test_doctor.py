"""`doctor`: what it tells about a good store and about a bad one."""

from __future__ import annotations

import json

import pytest

from cli.calls import call, call_json, new_url
from stratalog.cli.commands.check import doctor
from stratalog.store import MemoryStore

QUICK = ("--rounds", "2")


class Careless(MemoryStore):
    """Accepts every conditional put, as some proxies do."""

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        return await super().put_if_match(path, data, (await self.get(path)).etag)


def test_a_good_store_is_safe() -> None:
    url = new_url()
    report = call_json("doctor", url, *QUICK)
    assert report["url"] == url
    assert report["safe"] is True
    assert {check["status"] for check in report["checks"]} == {"held"}
    assert {"name", "value", "unit", "samples"} == set(report["measurements"][0])
    text = call("doctor", url, *QUICK).stdout
    assert "lost-update" in text
    assert "This store is safe for a log." in text


def test_a_long_url_stands_whole_on_a_line_of_its_own() -> None:
    url = f"{new_url()}/{'long/' * 60}end"
    lines = call("doctor", url, *QUICK).stdout.splitlines()
    assert lines[:2] == [url, "Guarantees"]


def test_a_store_that_ignores_conditions_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "open_store", lambda url: Careless("careless"))
    report = json.loads(call("doctor", "memory://careless", *QUICK, "--json", code=15).stdout)
    assert report["safe"] is False
    broken = {check["name"] for check in report["checks"] if check["status"] == "broken"}
    assert "stale-match" in broken
    text = call("doctor", "memory://careless", *QUICK, code=15).stdout
    assert "broken" in text
    assert "Without it: " in text
    assert "Do not keep a log on this store" in text
