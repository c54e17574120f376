"""`groups`, against a broker."""

from __future__ import annotations

import uuid

import pytest

from cli.calls import call, call_json, error_json
from clients.confluent import Confluent
from clients.published_client import Sent

NOON_MS = 1_700_000_000_000
POSITIONS = "--to-earliest --to-latest --to-offset --to-datetime --by-duration --shift-by".split()


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic with a hundred records, a second apart, in each of two partitions."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    client = Confluent(bootstrap)
    client.create_topic(name, 2)
    for partition in (0, 1):
        records = [
            Sent(b"x", time_ms=NOON_MS + number * 1000, partition=partition)
            for number in range(100)
        ]
        client.produce(name, records)
    return name


@pytest.fixture
def group(bootstrap: str, topic: str) -> str:
    """A group without members that has committed 40 of the one partition."""
    name = f"bills-{uuid.uuid4().hex[:8]}"
    Confluent(bootstrap).commit(name, topic, {0: 40})
    return name


def test_a_group_without_members_is_listed_described_and_deleted(topic: str, group: str) -> None:
    (found,) = [each for each in call_json("groups", "list") if each["group"] == group]
    assert found["state"] == "Empty"
    assert [group, "Empty"] in [
        line.split()[:2] for line in call("groups", "list").stdout.split("\n")
    ]
    described = call_json("groups", "describe", group)
    (progress,) = described["progress"]
    assert (progress["topic"], progress["partition"], progress["member"]) == (topic, 0, None)
    assert (progress["committed"], progress["end"], progress["lag"]) == (40, 100, 60)
    lines = call("groups", "describe", group).stdout.splitlines()
    assert lines[0] == f"{group}: Empty, 0 members"
    assert [topic, "0", "40", "100", "60", "-"] in [line.split() for line in lines]
    assert lines[-1] == "lag of all: 60"
    assert call("groups", "delete", group, "--yes").stdout == f"deleted the group {group}\n"
    assert group not in [each["group"] for each in call_json("groups", "list")]


def test_a_group_with_a_member_is_described_and_not_touched(
    bootstrap: str, topic: str, group: str
) -> None:
    with Confluent(bootstrap).member(group, topic):
        described = call_json("groups", "describe", group)
        assert (described["state"], described["assignor"]) == ("Stable", "range")
        (member,) = described["members"]
        assert (member["client"], member["host"]) == ("reader", "/127.0.0.1")
        assert [each["partition"] for each in member["assigned"]] == [0, 1]
        assert {each["member"] for each in described["progress"]} == {member["member"]}
        shown = call("groups", "describe", group).stdout
        assert shown.startswith(f"{group}: Stable, 1 member, assigned by range\n")
        for words in (
            ["delete", group, "--yes"],
            ["reset-offsets", group, "--topic", topic, "--to-latest", "--execute"],
        ):
            told = call("groups", *words, code=5).stderr
            assert "has members" in told
            assert "Stop its consumers" in told
    assert call_json("groups", "describe", group)["progress"][0]["committed"] == 40


@pytest.mark.parametrize(
    ("position", "offsets"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [100, 100]),
        (["--to-offset", "25"], [25, 25]),
        (["--to-offset", "2500"], [100, 100]),
        (["--to-datetime", str((NOON_MS + 30_500) * 1000)], [31, 31]),
        (["--by-duration", "1h"], [100, 100]),
        (["--shift-by", "-10", "--partition", "0"], [30]),
    ],
)
def test_offsets_are_reset_when_it_is_meant(
    topic: str, group: str, position: list[str], offsets: list[int]
) -> None:
    words = ("groups", "reset-offsets", group, "--topic", topic, *position)
    planned = call_json(*words)
    assert planned["executed"] is False
    assert [each["after"] for each in planned["moves"]] == offsets
    assert call("groups", "describe", group).stdout.endswith("lag of all: 60\n")
    assert call(*words).stdout.endswith("nothing was changed: add --execute to do it\n")
    assert call_json(*words, "--execute")["executed"] is True
    progress = call_json("groups", "describe", group)["progress"]
    assert [each["committed"] for each in progress] == offsets


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("describe nobody", 3, ["nobody", "`stratalog groups list`"]),
        ("delete nobody --yes", 3, ["nobody", "`stratalog groups list`"]),
        ("delete GROUP", 2, ["was not confirmed", "--yes"]),
        ("reset-offsets GROUP --topic TOPIC", 2, POSITIONS),
        ("reset-offsets GROUP --topic TOPIC --to-latest --to-offset 1", 2, POSITIONS),
        ("reset-offsets GROUP --topic nowhere --to-latest", 3, ["nowhere", "topics list"]),
        ("reset-offsets GROUP --topic TOPIC --partition 7 --to-latest", 3, ["7", "It has 2"]),
        ("reset-offsets GROUP --topic TOPIC --shift-by 1", 2, ["no committed offset"]),
    ],
)
def test_a_refusal_says_what_and_what_to_do(
    topic: str, group: str, words: str, code: int, said: list[str]
) -> None:
    args = ["groups", *words.replace("GROUP", group).replace("TOPIC", topic).split()]
    told = call(*args, code=code).stderr
    assert told.startswith("error: ")
    assert "\nnext: " in told
    for each in said:
        assert each in told
    assert error_json(*args, code=code)["exit_code"] == code
    assert call_json("groups", "describe", group)["progress"][0]["committed"] == 40
