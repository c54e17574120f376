"""CreateTopics, CreatePartitions and DeleteTopics, as clients see them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.create_partitions.v3.request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kio.schema.create_partitions.v3.response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kio.schema.create_topics.v7.request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i16, i32, i32Timedelta

from broker.topics.asking import WRONG_NAMES, Asking, run
from stratalog.broker.topics import SETTINGS

NODE = BrokerId(0)
MINUTE = i32Timedelta.parse(__import__("datetime").timedelta(minutes=1))


def wanted(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    placed: dict[int, tuple[int, ...]] | None = None,
    **settings: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(partitions),
        replication_factor=i16(factor),
        assignments=tuple(
            CreatableReplicaAssignment(
                partition_index=i32(number), broker_ids=tuple(BrokerId(each) for each in brokers)
            )
            for number, brokers in (placed or {}).items()
        ),
        configs=tuple(
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in settings.items()
        ),
    )


async def create(
    client: Asking, *topics: CreatableTopic, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    return list((await client.ask(request, CreateTopicsResponse)).topics)


async def delete(client: Asking, *which: str | UUID) -> list[DeletableTopicResult]:
    states = (
        DeleteTopicState(name=TopicName(each), topic_id=None)
        if isinstance(each, str)
        else DeleteTopicState(name=None, topic_id=each)
        for each in which
    )
    request = DeleteTopicsRequest(topics=tuple(states), timeout=MINUTE)
    return list((await client.ask(request, DeleteTopicsResponse)).responses)


async def grow(
    client: Asking,
    name: str,
    count: int,
    assignments: tuple[tuple[int, ...], ...] | None = None,
    validate_only: bool = False,
) -> CreatePartitionsTopicResult:
    placed = None
    if assignments is not None:
        placed = tuple(
            CreatePartitionsAssignment(broker_ids=tuple(BrokerId(each) for each in brokers))
            for brokers in assignments
        )
    topic = CreatePartitionsTopic(name=TopicName(name), count=i32(count), assignments=placed)
    request = CreatePartitionsRequest(topics=(topic,), timeout=MINUTE, validate_only=validate_only)
    (result,) = (await client.ask(request, CreatePartitionsResponse)).results
    return result


def names(client: Asking) -> list[str]:
    return [topic.name for topic in client.broker.context.topics.all()]


# Creating


def test_a_new_topic_is_answered_with_its_id_and_all_its_settings(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        (made,) = await create(client, wanted("a", 3, retention_ms="5"))
        topic = client.broker.context.topics.get("a")
        assert topic is not None
        assert (made.error_code, made.error_message) == (ErrorCode.none, None)
        assert (made.topic_id, made.num_partitions) == (topic.uuid, 3)
        assert made.replication_factor == 1
        configs = {each.name: each for each in made.configs or ()}
        assert set(configs) == set(SETTINGS)
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
        assert configs["retention.bytes"].config_source == 5

    run(tmp_path, test)


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_in_every_version(tmp_path: Path, version: int) -> None:
    asked: Any = import_module(f"kio.schema.create_topics.v{version}.request")
    answered: Any = import_module(f"kio.schema.create_topics.v{version}.response")

    async def test(client: Asking) -> None:
        topic = asked.CreatableTopic(
            name=TopicName("a"),
            num_partitions=i32(2),
            replication_factor=i16(1),
            assignments=(),
            configs=(),
        )
        request = asked.CreateTopicsRequest(topics=(topic,))
        (made,) = (await client.ask(request, answered.CreateTopicsResponse)).topics
        assert (made.name, made.error_code) == ("a", ErrorCode.none)
        (again,) = (await client.ask(request, answered.CreateTopicsResponse)).topics
        assert again.error_code is ErrorCode.topic_already_exists
        assert names(client) == ["a"]

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (wanted("there"), ErrorCode.topic_already_exists, "already exists"),
        (wanted("the_re.x"), ErrorCode.invalid_topic_exception, "collides"),
        (wanted("a", 0), ErrorCode.invalid_partitions, "non-positive"),
        (wanted("a", -2), ErrorCode.invalid_partitions, "non-positive"),
        (wanted("a", 10_001), ErrorCode.policy_violation, "Excessively"),
        (wanted("a", 2**31 - 1), ErrorCode.policy_violation, "Excessively"),
        (wanted("a", 1, 2), ErrorCode.invalid_replication_factor, "only 1 broker"),
        (wanted("a", 1, 0), ErrorCode.invalid_replication_factor, "non-positive"),
        (wanted("a", 1, -2), ErrorCode.invalid_replication_factor, "non-positive"),
        (wanted("a", retention_ms="x"), ErrorCode.invalid_config, "retention.ms"),
        (wanted("a", retention_ms=None), ErrorCode.invalid_config, "retention.ms"),
        (wanted("a", no_such="x"), ErrorCode.invalid_config, "no.such"),
        (wanted("a", segment_bytes="1"), ErrorCode.invalid_config, "segment.bytes"),
        (wanted("a", cleanup_policy="compact"), ErrorCode.invalid_config, "not there yet"),
        (wanted("a", 1, -1, {0: (0,)}), ErrorCode.invalid_request, "numPartitions"),
        (wanted("a", -1, 1, {0: (0,)}), ErrorCode.invalid_request, "replication factor"),
        (wanted("a", -1, -1, {0: (1,)}), ErrorCode.invalid_replica_assignment, "broker 1"),
        (wanted("a", -1, -1, {0: ()}), ErrorCode.invalid_replica_assignment, "empty"),
        (wanted("a", -1, -1, {0: (0, 0)}), ErrorCode.invalid_replica_assignment, "more than"),
        (wanted("a", -1, -1, {1: (0,)}), ErrorCode.invalid_replica_assignment, "consecutive"),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_what_cannot_be_created_is_refused_with_kafkas_code_and_the_reason(
    tmp_path: Path, topic: CreatableTopic, code: ErrorCode, words: str, validate_only: bool
) -> None:
    async def test(client: Asking) -> None:
        await client.create("there", "the.re_x")
        (refused,) = await create(client, topic, validate_only=validate_only)
        assert refused.error_code is code
        assert words in (refused.error_message or "")
        assert names(client) == ["the.re_x", "there"]

    run(tmp_path, test)


def test_wrong_names_are_refused(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        refused = await create(client, *map(wanted, WRONG_NAMES))
        assert [each.name for each in refused] == WRONG_NAMES
        assert {each.error_code for each in refused} == {ErrorCode.invalid_topic_exception}
        assert client.broker.context.disk.partitions() == ["groups"]

    run(tmp_path, test)


def test_one_topic_that_cannot_be_created_keeps_no_other_from_it(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        results = await create(client, wanted("a"), wanted("b", 0), wanted("c"))
        assert [each.error_code for each in results] == [
            ErrorCode.none,
            ErrorCode.invalid_partitions,
            ErrorCode.none,
        ]
        assert names(client) == ["a", "c"]

    run(tmp_path, test)


def test_a_name_that_is_given_twice_is_created_not_at_all(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        results = await create(client, wanted("a", 1), wanted("b"), wanted("a", 2))
        assert {each.name: each.error_code for each in results} == {
            "a": ErrorCode.invalid_request,
            "b": ErrorCode.none,
        }
        assert names(client) == ["b"]

    run(tmp_path, test)


def test_names_that_collide_with_each_other_in_one_request_give_one_topic(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        results = await create(client, wanted("a.b"), wanted("a_b"))
        codes = sorted(each.error_code.name for each in results)
        assert codes == ["invalid_topic_exception", "none"]
        assert len(names(client)) == 1

    run(tmp_path, test)


def test_partitions_may_be_placed_on_this_node_by_hand(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        (made,) = await create(client, wanted("a", -1, -1, {1: (0,), 0: (0,)}))
        assert (made.error_code, made.num_partitions) == (ErrorCode.none, 2)

    run(tmp_path, test)


def test_defaults_are_used_where_none_is_given(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        (made,) = await create(client, wanted("a", -1, -1))
        assert (made.num_partitions, made.replication_factor) == (4, 1)

    run(tmp_path, test, default_partitions=4)


def test_validating_makes_nothing(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        (valid,) = await create(client, wanted("a", 3), validate_only=True)
        assert (valid.error_code, valid.num_partitions) == (ErrorCode.none, 3)
        assert valid.topic_id is None
        assert names(client) == []

    run(tmp_path, test)


# More partitions


def test_partitions_are_added_and_old_ones_keep_their_records(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        await client.create("a")
        await client.append("a", (b"x", 5))
        assert (await grow(client, "a", 3)).error_code is ErrorCode.none
        assert [client.log("a", number).high_watermark for number in range(3)] == [1, 0, 0]
        await client.append("a", (b"y", 5), partition=2)

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("a", 2, None, ErrorCode.invalid_partitions),
        ("a", 1, None, ErrorCode.invalid_partitions),
        ("a", -1, None, ErrorCode.invalid_partitions),
        ("a", 20_000, None, ErrorCode.policy_violation),
        ("b", 3, None, ErrorCode.unknown_topic_or_partition),
        ("a/b", 3, None, ErrorCode.invalid_topic_exception),
        ("a", 4, ((0,),), ErrorCode.invalid_replica_assignment),
        ("a", 3, ((1,),), ErrorCode.invalid_replica_assignment),
        ("a", 3, ((0, 0),), ErrorCode.invalid_replica_assignment),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_partitions_that_cannot_be_added_are_refused(
    tmp_path: Path,
    name: str,
    count: int,
    assignments: tuple[tuple[int, ...], ...] | None,
    code: ErrorCode,
    validate_only: bool,
) -> None:
    async def test(client: Asking) -> None:
        await client.create("a", partitions=2)
        refused = await grow(client, name, count, assignments, validate_only)
        assert refused.error_code is code
        assert refused.error_message
        topic = client.broker.context.topics.get("a")
        assert topic is not None
        assert len(topic.partitions) == 2

    run(tmp_path, test)


def test_partitions_are_placed_by_hand_or_only_validated(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        await client.create("a")
        valid = await grow(client, "a", 3, ((0,), (0,)), validate_only=True)
        assert valid.error_code is ErrorCode.none
        assert client.broker.context.topics.partition("a", 1) is None
        assert (await grow(client, "a", 3, ((0,), (0,)))).error_code is ErrorCode.none
        assert client.broker.context.topics.partition("a", 2) is not None

    run(tmp_path, test)


# Deleting


def test_a_deleted_topic_is_gone_with_its_partitions(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        await client.create("a", "b", partitions=2)
        (gone,) = await delete(client, "a")
        assert gone.error_code is ErrorCode.none
        assert names(client) == ["b"]
        assert len(client.broker.context.disk.partitions()) == 3  # two, and that of groups

    run(tmp_path, test)


def test_a_topic_is_deleted_by_its_id(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        await client.create("a")
        topic = client.broker.context.topics.get("a")
        assert topic is not None
        (gone,) = await delete(client, topic.uuid)
        assert (gone.name, gone.error_code) == ("a", ErrorCode.none)
        await client.create("a")
        (other,) = await delete(client, topic.uuid)
        assert other.error_code is ErrorCode.unknown_topic_id
        assert names(client) == ["a"]

    run(tmp_path, test)


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_name_in_every_version(tmp_path: Path, version: int) -> None:
    asked: Any = import_module(f"kio.schema.delete_topics.v{version}.request")
    answered: Any = import_module(f"kio.schema.delete_topics.v{version}.response")

    async def test(client: Asking) -> None:
        await client.create("a")
        request = asked.DeleteTopicsRequest(
            topic_names=(TopicName("a"), TopicName("b")), timeout=MINUTE
        )
        answer = await client.ask(request, answered.DeleteTopicsResponse)
        assert [(each.name, each.error_code) for each in answer.responses] == [
            ("a", ErrorCode.none),
            ("b", ErrorCode.unknown_topic_or_partition),
        ]

    run(tmp_path, test)


def test_what_cannot_be_deleted_is_refused(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        await client.create("a")
        refused = await delete(client, *WRONG_NAMES)
        assert {each.error_code for each in refused} == {ErrorCode.invalid_topic_exception}
        (twice,) = await delete(client, "a", "a")
        assert twice.error_code is ErrorCode.invalid_request
        (unknown,) = await delete(client, UUID(int=7))
        assert unknown.error_code is ErrorCode.unknown_topic_id
        states = (
            DeleteTopicState(name=None, topic_id=None),
            DeleteTopicState(name=TopicName("a"), topic_id=UUID(int=7)),
        )
        request = DeleteTopicsRequest(topics=states, timeout=MINUTE)
        answer = await client.ask(request, DeleteTopicsResponse)
        assert {each.error_code for each in answer.responses} == {ErrorCode.invalid_request}
        assert names(client) == ["a"]

    run(tmp_path, test)


def test_a_topic_made_again_has_a_new_id_and_no_old_records(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        ids = set()
        for _ in range(5):
            await client.create("a")
            topic = client.broker.context.topics.get("a")
            assert topic is not None
            ids.add(topic.id)
            assert client.log("a").high_watermark == 0
            await client.append("a", (b"x", 5))
            await delete(client, "a")
        assert len(ids) == 5

    run(tmp_path, test)
