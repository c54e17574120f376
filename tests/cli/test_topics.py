"""`topics`, against a broker."""

from __future__ import annotations

import os
import pty
import uuid

import pytest

from cli.calls import TIMEOUT_S, call, call_json, error_json, start
from clients.confluent import Confluent
from clients.published_client import Sent


@pytest.fixture
def name(bootstrap: str) -> str:
    """Of a topic that nobody has used."""
    return f"orders-{uuid.uuid4().hex[:8]}"


def test_a_topic_is_created_listed_described_and_deleted(name: str) -> None:
    said = call("topics", "create", name, "--partitions", "3").stdout
    assert said == f"created the topic {name} with 3 partitions\n"
    (found,) = [each for each in call_json("topics", "list") if each["name"] == name]
    assert (found["partitions"], found["is_internal"]) == (3, False)
    assert call_json("topics", "describe", name)["id"] == found["id"] != ""
    listed = call("topics", "list").stdout.splitlines()
    assert listed[0].split() == ["topic", "partitions", "id"]
    assert [name, "3", found["id"]] in [line.split() for line in listed]
    assert call("topics", "delete", name, "--yes").stdout == f"deleted the topic {name}\n"
    assert name not in call("topics", "list").stdout


def test_a_description_has_offsets_and_settings(bootstrap: str, name: str) -> None:
    call("topics", "create", name, "--partitions", "2", "--config", "retention.ms=3600000")
    Confluent(bootstrap).produce(name, [Sent(b"x", partition=1)] * 1234)
    described = call_json("topics", "describe", name)
    ends = {each["partition"]: (each["start"], each["end"]) for each in described["partitions"]}
    assert ends == {0: (0, 0), 1: (0, 1234)}
    settings = {each["name"]: each for each in described["settings"]}
    assert settings["retention.ms"]["value"] == "3600000"
    assert settings["retention.ms"]["is_default"] is False
    assert settings["retention.bytes"]["is_default"] is True
    lines = call("topics", "describe", name).stdout.splitlines()
    assert lines[0] == f"{name}: 2 partitions, 1,234 offsets, id {described['id']}"
    assert ["retention.ms", "3600000", "set", "for", "this", "topic"] in map(str.split, lines)
    assert ["1", "0", "1", "0", "1,234"] in [line.split()[:5] for line in lines]


def test_without_a_number_the_broker_decides_how_many_partitions(name: str) -> None:
    assert call_json("topics", "create", name)["partitions"] == 1


def test_a_topic_is_altered(name: str) -> None:
    call("topics", "create", name)
    change = ("--config", "retention.bytes=1000000", "--partitions", "4")
    assert call("topics", "alter", name, *change).stdout == f"changed the topic {name}\n"
    described = call_json("topics", "describe", name)
    assert len(described["partitions"]) == 4
    assert ("retention.bytes", "1000000") in [
        (each["name"], each["value"]) for each in described["settings"]
    ]
    call("topics", "alter", name, "--unset", "retention.bytes")
    settings = call_json("topics", "describe", name)["settings"]
    assert [each["value"] for each in settings if each["name"] == "retention.bytes"] == ["-1"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("describe nowhere", 3, ["topic nowhere", "`stratalog topics list`"]),
        ("delete nowhere --yes", 3, ["nowhere", "`stratalog topics list`"]),
        ("alter nowhere --partitions 2", 3, ["nowhere", "`stratalog topics list`"]),
        ("create THERE", 4, ["THERE", "already"]),
        ("create a/b", 2, ["a/b", "1 to 249"]),
        ("create new --config retention.mss=5", 2, ["'retention.mss'", "mean retention.ms?"]),
        ("create new --config retention.ms=soon", 2, ["'soon'", "retention.ms"]),
        ("create new --config segment.bytes=9", 2, ["segment.bytes is not supported"]),
        ("create new --config retention.ms", 2, ["is no setting like retention.ms=3600000"]),
        ("create new --partitions 100000000", 8, ["100000000", "at most"]),
        ("alter THERE --partitions 2", 2, ["currently has 3", "only added"]),
        ("alter THERE --unset retention.m", 2, ["retention.ms?"]),
        ("alter THERE", 2, ["nothing to change", "--config KEY=VALUE"]),
        ("delete THERE", 2, ["was not confirmed", "--yes"]),
    ],
)
def test_a_refusal_says_what_and_what_to_do(
    name: str, words: str, code: int, said: list[str]
) -> None:
    call("topics", "create", name, "--partitions", "3")
    args = ["topics", *words.replace("THERE", name).split()]
    told = call(*args, code=code).stderr
    assert told.startswith("error: ")
    assert told.count("\nnext: ") == 1
    for each in said:
        assert each.replace("THERE", name) in told
    assert error_json(*args, code=code)["exit_code"] == code
    assert call_json("topics", "describe", name)["name"] == name
    assert "new" not in [each["name"] for each in call_json("topics", "list")]


def test_a_broker_that_is_not_there_is_named_with_what_to_start() -> None:
    told = call("topics", "list", "--bootstrap", "127.0.0.1:1", code=11).stderr
    assert told.startswith("error: no broker can be reached at 127.0.0.1:1: Connection refused\n")
    assert "`stratalog serve --data DIR`" in told
    assert "--bootstrap" in told


def test_a_wrong_address_is_refused() -> None:
    assert "HOST:PORT" in error_json("topics", "list", "--bootstrap", "a:b", code=2)["hint"]


@pytest.mark.parametrize(("answer", "code"), [("NAME", 0), ("no", 5), ("", 5)])
def test_on_a_terminal_the_name_confirms_a_deletion(name: str, answer: str, code: int) -> None:
    call("topics", "create", name)
    terminal, inner = pty.openpty()
    try:
        with start("topics", "delete", name, stdin=inner) as program:
            os.write(terminal, answer.replace("NAME", name).encode() + b"\n")
            out, told = program.communicate(timeout=TIMEOUT_S)
    finally:
        os.close(inner)
        os.close(terminal)
    assert program.returncode == code, told
    assert f"Type {name} to delete this topic: ".encode() in told
    is_there = name in [each["name"] for each in call_json("topics", "list")]
    assert is_there is (code != 0)
    assert (out == f"deleted the topic {name}\n".encode()) is (code == 0)
