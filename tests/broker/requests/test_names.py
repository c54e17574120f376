"""Names that no topic can have, in every request that names one: refused, and nothing is made."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from random import Random
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map

from broker.plugged import PluggedBroker, decoded, play
from broker.record_requests import fetch_request, produce_request
from broker.wire.drawn_payloads import drawn_payload
from stratalog.broker.requests import served
from stratalog.partitions import NewRecord, encode_batch

WRONG_NAMES = (
    "",
    ".",
    "..",
    "a/b",
    "../../etc/passwd",
    "a\0b",
    "x" * 300,
    "ä",
    "a b",
    "y" * 30_000,
)
DRAWN = 12
WAITS_FOR_OTHERS = ("join_group", "sync_group")
REFUSES_EACH = {
    *("list_offsets", "metadata", "create_topics", "delete_topics", "create_partitions"),
    *("delete_records", "offset_for_leader_epoch", "offset_commit", "describe_producers"),
    *("describe_configs", "alter_configs", "incremental_alter_configs"),
}
"""Each part of whose answers has a code of its own."""
LAST = [(each.key, each.last) for each in served().advertised()]


@pytest.mark.parametrize(("key", "version"), LAST, ids=[api_key_map[key] for key, _ in LAST])
def test_no_request_makes_anything_of_a_wrong_name(key: int, version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        schema: Any = load_request_schema(key, version)
        answers: Any = load_response_schema(key, version)
        api, client = api_key_map[key], broker.client()
        for name in WRONG_NAMES:
            random = Random(name)
            for _ in range(DRAWN):
                number = client.request(drawn_payload(schema, random, (name,)))
                if api in WAITS_FOR_OTHERS:
                    continue
                answer = decoded(await client.answer(), answers, number)
                if api in REFUSES_EACH:
                    assert ErrorCode.none not in codes_of_parts(answer)
        assert not client.is_closed
        assert broker.topics.all() == []
        home: Any = broker.topics._home
        assert home.names() == []

    play(test)


def codes_of_parts(answer: Any) -> list[ErrorCode]:
    """Of its topics, partitions or resources."""
    found = []
    for field in fields(answer):
        value = getattr(answer, field.name)
        for each in value if isinstance(value, tuple) else ():
            if is_dataclass(each):
                found += [each.error_code] if hasattr(each, "error_code") else []
                found += codes_of_parts(each)
    return found


@pytest.mark.parametrize("name", WRONG_NAMES[:-1])
def test_nothing_is_produced_to_or_fetched_from_a_wrong_name(name: str) -> None:
    async def test(broker: PluggedBroker) -> None:
        client = broker.client()
        batch = bytes(encode_batch([NewRecord(None, b"v")]))
        produced: Any = await client.ask(
            produce_request(9, name, batch), load_response_schema(0, 9)
        )
        fetched: Any = await client.ask(
            fetch_request(12, [(name, 0, 0)]), load_response_schema(1, 12)
        )
        (of_produce,) = produced.responses[0].partition_responses
        (of_fetch,) = fetched.responses[0].partitions
        assert of_produce.error_code is ErrorCode.unknown_topic_or_partition
        assert of_fetch.error_code is ErrorCode.unknown_topic_or_partition

    play(test)
