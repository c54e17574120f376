"""Metadata, in every version."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseTopic
from kio.schema.types import TopicName

from broker.topics.asking import WRONG_NAMES, Asking, run


def request(*names: str, create: bool = False, ids: tuple[UUID, ...] = ()) -> MetadataRequest:
    return MetadataRequest(
        topics=(
            *(MetadataRequestTopic(name=TopicName(name), topic_id=None) for name in names),
            *(MetadataRequestTopic(name=None, topic_id=each) for each in ids),
        ),
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=False,
    )


async def described(client: Asking, asked: MetadataRequest) -> tuple[MetadataResponseTopic, ...]:
    return (await client.ask(asked, MetadataResponse)).topics


async def one(client: Asking, asked: MetadataRequest) -> MetadataResponseTopic:
    (topic,) = await described(client, asked)
    return topic


ALL = MetadataRequest(topics=None, include_topic_authorized_operations=False)


@pytest.mark.parametrize("version", range(13))
def test_every_version_names_broker_topics_and_leaders(tmp_path: Path, version: int) -> None:
    asked: Any = import_module(f"kio.schema.metadata.v{version}.request")
    answered: Any = import_module(f"kio.schema.metadata.v{version}.response")

    async def test(client: Asking) -> None:
        await client.create("b", "a", partitions=2)
        fields: dict[str, Any] = {"topics": () if version == 0 else None}
        if version >= 8:
            fields["include_topic_authorized_operations"] = False
        if 8 <= version <= 10:
            fields["include_cluster_authorized_operations"] = False
        answer = await client.ask(asked.MetadataRequest(**fields), answered.MetadataResponse)
        (broker,) = answer.brokers
        assert (broker.host, broker.port) == ("127.0.0.1", client.broker.address.port)
        assert [topic.name for topic in answer.topics] == ["a", "b"]
        for topic in answer.topics:
            partitions = [(each.partition_index, each.leader_id) for each in topic.partitions]
            assert partitions == [(0, broker.node_id), (1, broker.node_id)]
            if version >= 10:
                known = client.broker.context.topics.get(topic.name or "")
                assert known is not None
                assert topic.topic_id == known.uuid

    run(tmp_path, test)


def test_naming_no_topics_gives_none_of_them(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        await client.create("a")
        assert await described(client, request()) == ()
        assert len(await described(client, ALL)) == 1

    run(tmp_path, test)


def test_an_unknown_topic_is_created_if_client_and_broker_want_it(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        refused = await one(client, request("a"))
        assert refused.error_code is ErrorCode.unknown_topic_or_partition
        assert await described(client, ALL) == ()
        made = await one(client, request("a", create=True))
        assert (made.error_code, len(made.partitions)) == (ErrorCode.none, 3)
        assert await one(client, request("a")) == made

    run(tmp_path, test, default_partitions=3)


def test_an_unknown_topic_is_not_created_if_the_broker_does_not_want_it(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        refused = await one(client, request("a", create=True))
        assert refused.error_code is ErrorCode.unknown_topic_or_partition
        assert await described(client, ALL) == ()

    run(tmp_path, test, auto_create=False)


def test_a_topic_that_is_asked_for_many_times_at_once_is_made_once(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        names = [f"t{number % 20}" for number in range(200)]
        topics = await described(client, request(*names, create=True))
        assert [topic.name for topic in topics] == [f"t{number}" for number in range(20)]
        assert len({topic.topic_id for topic in topics}) == 20

    run(tmp_path, test)


@pytest.mark.parametrize("create", [True, False])
def test_a_wrong_name_is_refused_whether_or_not_topics_are_created(
    tmp_path: Path, create: bool
) -> None:
    async def test(client: Asking) -> None:
        topics = await described(client, request(*WRONG_NAMES, create=create))
        assert [topic.name for topic in topics] == WRONG_NAMES
        assert {topic.error_code for topic in topics} == {ErrorCode.invalid_topic_exception}
        assert await described(client, ALL) == ()

    run(tmp_path, test)


def test_a_name_that_collides_is_not_created(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        await client.create("a.b")
        refused = await one(client, request("a_b", create=True))
        assert refused.error_code is ErrorCode.invalid_topic_exception

    run(tmp_path, test)


def test_a_topic_is_found_by_its_id_until_it_is_deleted(tmp_path: Path) -> None:
    async def test(client: Asking) -> None:
        await client.create("a")
        topic = client.broker.context.topics.get("a")
        assert topic is not None
        assert (await one(client, request(ids=(topic.uuid,)))).name == "a"
        await client.broker.context.topics.delete("a")
        await client.create("a")
        gone = await one(client, request(ids=(topic.uuid,)))
        assert (gone.error_code, gone.name) == (ErrorCode.unknown_topic_id, None)

    run(tmp_path, test)
