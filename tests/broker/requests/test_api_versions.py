"""ApiVersions: what clients are told of, and that all of it is served."""

from __future__ import annotations

from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.api_versions.v0.response import ApiVersionsResponse as OldestResponse
from kio.schema.errors import ErrorCode

from broker.plugged import PluggedBroker, decoded, framed, play, request_frame
from stratalog.broker.requests import served

KEY = 18
PRODUCE, FETCH, METADATA = 0, 1, 3
TRANSACTIONS = {24, 25, 26, 27, 28}
"""The APIs that exist for nothing else."""


def request(version: int) -> Any:
    schema: Any = load_request_schema(KEY, version)
    given = {"client_software_name": "test", "client_software_version": "1"}
    return schema(**{name: given[name] for name in given if name in schema.__annotations__})


def ranges(answer: Any) -> dict[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


@pytest.mark.parametrize("version", range(5))
def test_every_version_tells_the_same_of_every_api_that_is_served(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        answer: Any = await broker.client().ask(
            request(version), load_response_schema(KEY, version)
        )
        assert answer.error_code is ErrorCode.none
        told = ranges(answer)
        assert told.pop(PRODUCE) == (0, 9), "librdkafka looks for version 0"
        assert told.pop(FETCH) == (4, 12), "no topic ids"
        assert told.pop(KEY) == (0, 4)
        assert told == {each.key: (each.first, each.last) for each in served().advertised()}
        assert told[METADATA] == (0, 12)
        assert not TRANSACTIONS & set(told)

    play(test)


@pytest.mark.parametrize("version", [5, 6, 100, 32767, -1, -32768])
def test_a_version_that_is_too_new_is_answered_in_version_0_with_ours(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        client = broker.client()
        body = bytearray(request_frame(request(4))[4:])
        body[2:4] = version.to_bytes(2, signed=True)
        client.send(framed(bytes(body)))
        answer = decoded(await client.answer(), OldestResponse, 1)
        assert answer.error_code is ErrorCode.unsupported_version
        assert ranges(answer) == {KEY: (0, 4)}
        again: Any = await client.ask(request(3), load_response_schema(KEY, 3))
        assert again.error_code is ErrorCode.none, "the client asks again on this connection"

    play(test)


def test_every_version_that_is_told_of_is_served_and_no_other() -> None:
    registry = served()
    for each in registry.advertised():
        for version in range(each.first, each.last + 1):
            assert registry.find(each.key, version) is not None
        assert registry.find(each.key, each.first - 1) is None
        assert registry.find(each.key, each.last + 1) is None
