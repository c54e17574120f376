"""What is answered about the cluster, settings, groups and producers, over the wire."""

from __future__ import annotations

from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from broker.plugged import Client, PluggedBroker, play
from broker.record_requests import produce_request
from broker.requests.fetching import filled
from stratalog.broker.wire.translate import default_of, shape_of
from stratalog.partitions import NewRecord, encode_batch

FIND_COORDINATOR, DESCRIBE_GROUPS, LIST_GROUPS = 10, 15, 16
OFFSET_COMMIT, OFFSET_FETCH, OFFSET_DELETE = 8, 9, 47
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
DESCRIBE_LOG_DIRS, DESCRIBE_CLUSTER, DESCRIBE_PRODUCERS = 35, 60, 61
TOPIC, BROKER, LOGGER = 2, 4, 8
SET = 0


def made(schema: Any, /, **given: Any) -> Any:
    """A structure: what is not given has its default, dictionaries become structures."""
    values = {}
    for name, field in schema.__dataclass_fields__.items():
        if name.startswith("__"):
            continue
        inner = shape_of(field.type).inner
        value = given.pop(name) if name in given else default_of(field)
        if isinstance(value, list):
            value = tuple(made(inner, **each) if isinstance(each, dict) else each for each in value)
        values[name] = value
    assert not given
    return schema(**values)


async def ask(client: Client, api: int, version: int, /, **given: Any) -> Any:
    """The answer to a request, which is not throttled."""
    request = made(load_request_schema(api, version), **given)
    answer: Any = await client.ask(request, load_response_schema(api, version))
    assert not getattr(answer, "throttle_time", None)
    return answer


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_one_broker(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        answer = await ask(broker.client(), DESCRIBE_CLUSTER, version)
        assert (answer.cluster_id, answer.controller_id) == ("memory", 0)
        (one,) = answer.brokers
        advertised = broker.context.advertised
        assert (one.broker_id, one.host, one.port) == (0, advertised.host, advertised.port)

    play(test)


def test_there_are_no_controllers_beside_it() -> None:
    async def test(broker: PluggedBroker) -> None:
        answer = await ask(broker.client(), DESCRIBE_CLUSTER, 2, endpoint_type=2)
        assert answer.error_code is ErrorCode.mismatched_endpoint_type
        assert answer.brokers == ()

    play(test)


@pytest.mark.parametrize("version", range(5))
def test_a_group_is_coordinated_here(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        keys = {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
        answer = await ask(broker.client(), FIND_COORDINATOR, version, **keys)
        found = answer.coordinators[0] if version >= 4 else answer
        assert found.error_code is ErrorCode.none
        advertised = broker.context.advertised
        assert (found.node_id, found.host, found.port) == (0, advertised.host, advertised.port)

    play(test)


async def shown(client: Client, kind: int, name: str, *keys: str, version: int = 4) -> Any:
    """One resource with its settings."""
    resource = {"resource_type": kind, "resource_name": name}
    resource["configuration_keys"] = list(keys) if keys else None
    answer = await ask(client, DESCRIBE_CONFIGS, version, resources=[resource])
    (found,) = answer.results
    assert (found.resource_type, found.resource_name) == (kind, name)
    return found


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_of_a_topic_and_of_the_broker_are_shown(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", retention_ms="1000")
        client = broker.client()
        everything = await shown(client, TOPIC, "t", version=version)
        assert len(everything.configs) > 10
        one = await shown(client, TOPIC, "t", "retention.ms", version=version)
        assert [(each.name, each.value) for each in one.configs] == [("retention.ms", "1000")]
        of_broker = await shown(client, BROKER, "0", version=version)
        assert of_broker.error_code is ErrorCode.none
        assert of_broker.configs

    play(test)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "a/b", ErrorCode.invalid_topic_exception),
        (BROKER, "7", ErrorCode.invalid_request),
        (BROKER, "x", ErrorCode.invalid_request),
        (LOGGER, "0", ErrorCode.invalid_request),
        (0, "", ErrorCode.invalid_request),
    ],
)
def test_settings_of_what_is_not_there_are_refused(kind: int, name: str, code: ErrorCode) -> None:
    async def test(broker: PluggedBroker) -> None:
        found = await shown(broker.client(), kind, name)
        assert (found.error_code, found.configs) == (code, ())
        assert found.error_message

    play(test)


def change(name: str, value: str, *, topic: str = "t", kind: int = TOPIC) -> dict[str, Any]:
    config = {"name": name, "value": value}
    return {"resource_type": kind, "resource_name": topic, "configs": [config]}


@pytest.mark.parametrize("version", range(2))
def test_a_setting_is_changed_and_the_others_stay(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", retention_ms="1000")
        client = broker.client()
        for is_dry, value in ((True, "1048588"), (False, "2000")):
            answer = await ask(
                client,
                INCREMENTAL_ALTER_CONFIGS,
                version,
                resources=[change("max.message.bytes", "2000")],
                validate_only=is_dry,
            )
            assert [each.error_code for each in answer.responses] == [ErrorCode.none]
            found = await shown(client, TOPIC, "t", "max.message.bytes", "retention.ms")
            assert {each.name: each.value for each in found.configs} == {
                "max.message.bytes": value,
                "retention.ms": "1000",
            }
        large = bytes(encode_batch([NewRecord(None, bytes(3000))]))
        produced: Any = await client.ask(produce_request(8, "t", large), load_response_schema(0, 8))
        code = produced.responses[0].partition_responses[0].error_code
        assert code is ErrorCode.message_too_large, "it holds at once"

    play(test)


@pytest.mark.parametrize("version", range(3))
def test_all_settings_are_replaced(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", retention_ms="1000")
        client = broker.client()
        await ask(client, ALTER_CONFIGS, version, resources=[change("max.message.bytes", "2000")])
        found = await shown(client, TOPIC, "t", "max.message.bytes", "retention.ms")
        assert {each.name: each.value for each in found.configs} == {
            "max.message.bytes": "2000",
            "retention.ms": str(168 * 3_600_000),
        }

    play(test)


@pytest.mark.parametrize("key", [ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS])
@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (change("no.such.setting", "1"), ErrorCode.invalid_config),
        (change("retention.ms", "soon"), ErrorCode.invalid_config),
        (change("retention.ms", "1", topic="missing"), ErrorCode.unknown_topic_or_partition),
        (change("retention.ms", "1", topic=".."), ErrorCode.invalid_topic_exception),
        (change("node_id", "1", topic="0", kind=BROKER), ErrorCode.invalid_request),
        (change("x", "1", topic="0", kind=LOGGER), ErrorCode.invalid_request),
    ],
)
def test_settings_that_cannot_be_changed_are_refused_beside_those_that_can(
    key: int, wanted: dict[str, Any], code: ErrorCode
) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await broker.create("good")
        resources = [wanted, change("retention.ms", "5", topic="good")]
        answer = await ask(broker.client(), key, 1, resources=resources)
        assert [each.error_code for each in answer.responses] == [code, ErrorCode.none]
        assert answer.responses[0].error_message

    play(test)


def test_a_small_request_does_not_have_a_huge_answer() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        settings = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": None}
        answer = await ask(client, DESCRIBE_CONFIGS, 4, resources=[settings] * 5000)
        assert len(answer.results) == 1
        answer = await ask(client, DESCRIBE_GROUPS, 5, groups=["g"] * 5000)
        assert len(answer.groups) == 1
        answer = await ask(
            client, DESCRIBE_PRODUCERS, 0, topics=[{"name": "t", "partition_indexes": [0] * 5000}]
        )
        assert len(answer.topics[0].partitions) == 1
        answer = await ask(
            client, OFFSET_FETCH, 8, groups=[{"group_id": "g", "topics": None}] * 5000
        )
        assert len(answer.groups) == 1

    play(test)


def test_a_group_that_is_not_there_is_dead() -> None:
    async def test(broker: PluggedBroker) -> None:
        client = broker.client()
        answer = await ask(client, DESCRIBE_GROUPS, 5, groups=["missing", ""])
        assert [(each.error_code, each.group_state) for each in answer.groups] == [
            (ErrorCode.none, "Dead"),
            (ErrorCode.invalid_group_id, "Dead"),
        ]
        assert (await ask(client, LIST_GROUPS, 4)).groups == ()

    play(test)


def test_offsets_are_committed_fetched_and_deleted() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", 2)
        client = broker.client()
        parts = [{"partition_index": number, "committed_offset": 40 + number} for number in (0, 1)]
        answer = await ask(
            client,
            OFFSET_COMMIT,
            8,
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=[{"name": "t", "partitions": parts}],
        )
        codes = [each.error_code for each in answer.topics[0].partitions]
        assert codes == [ErrorCode.none] * 2
        for deleted, left in (((), [40, 41]), ((0,), [41]), ((1, 5), [])):
            if deleted:
                topics = [
                    {
                        "name": "t",
                        "partitions": [{"partition_index": number} for number in deleted],
                    },
                ]
                answer = await ask(client, OFFSET_DELETE, 0, group_id="g", topics=topics)
                assert answer.error_code is ErrorCode.none
            found = await ask(client, OFFSET_FETCH, 8, groups=[{"group_id": "g", "topics": None}])
            offsets = [
                each.committed_offset
                for topic in found.groups[0].topics
                for each in topic.partitions
            ]
            assert offsets == left

    play(test)


@pytest.mark.parametrize(
    ("group", "code"),
    [("missing", ErrorCode.group_id_not_found), ("", ErrorCode.invalid_group_id)],
)
def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted(
    group: str, code: ErrorCode
) -> None:
    async def test(broker: PluggedBroker) -> None:
        answer = await ask(broker.client(), OFFSET_DELETE, 0, group_id=group, topics=[])
        assert answer.error_code is code

    play(test)


def test_producers_of_a_partition_are_described() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        batch = encode_batch(
            [NewRecord(None, b"v")] * 3, producer_id=5, producer_epoch=2, base_sequence=0
        )
        await client.ask(produce_request(8, "t", bytes(batch)), load_response_schema(0, 8))
        answer = await ask(
            client, DESCRIBE_PRODUCERS, 0, topics=[{"name": "t", "partition_indexes": [0, 1]}]
        )
        known, missing = answer.topics[0].partitions
        (producer,) = known.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 2, 2)
        assert missing.error_code is ErrorCode.unknown_topic_or_partition

    play(test)


@pytest.mark.parametrize("version", range(1, 5))
def test_the_sizes_of_partitions_are_told(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", 2)
        await filled(broker, 1, 1)
        answer = await ask(broker.client(), DESCRIBE_LOG_DIRS, version, topics=None)
        (topic,) = answer.results[0].topics
        sizes = [each.partition_size for each in topic.partitions]
        assert sizes == [broker.log("t").size, 0]
        assert sizes[0] > 0

    play(test)
