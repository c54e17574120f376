"""What can be asked about topics, and done with them, over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse
from kio.schema.create_topics.v7.request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeleteTopicsResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseTopic
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta

from stratalog.broker.admin.connection import Connection
from stratalog.broker.admin.offsets import EARLIEST, LATEST, offsets_at
from stratalog.broker.admin.refusal import check
from stratalog.errors import NotFound

_TOPIC = i8(2)
_SET, _DELETE = i8(0), i8(1)
_OWN = 1
"""The source of a setting that was given to the topic itself."""
_NO_REPLICAS = i16(-1)


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic in a list."""

    name: str
    id: str
    partitions: int
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """Where a partition begins and ends. ``end`` is the offset that the next record gets."""

    partition: int
    leader: int
    leader_epoch: int
    start: int
    end: int
    size_bytes: int | None
    """Its bytes on the disk, or None if the broker does not say."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a topic, and whether it was given to the topic or is the default."""

    name: str
    value: str | None
    is_default: bool


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with all of its partitions and settings."""

    name: str
    id: str
    partitions: tuple[PartitionDescription, ...]
    settings: tuple[Setting, ...]


async def list_topics(connection: Connection) -> list[TopicSummary]:
    """All topics, by name."""
    found = await _metadata(connection, None)
    return sorted(
        (
            TopicSummary(str(each.name), _id(each), len(each.partitions), each.is_internal)
            for each in found
        ),
        key=lambda topic: topic.name,
    )


async def describe_topic(connection: Connection, name: str) -> TopicDescription:
    """One topic. The ends of its partitions are those of one moment each."""
    (topic,) = await _metadata(connection, [name])
    numbers = sorted(each.partition_index for each in topic.partitions)
    starts = await offsets_at(connection, name, dict.fromkeys(numbers, EARLIEST))
    ends = await offsets_at(connection, name, dict.fromkeys(numbers, LATEST))
    sizes = await _sizes(connection, name, numbers)
    partitions = tuple(
        PartitionDescription(
            partition=each.partition_index,
            leader=each.leader_id,
            leader_epoch=each.leader_epoch,
            start=starts[each.partition_index],
            end=ends[each.partition_index],
            size_bytes=sizes.get(each.partition_index),
        )
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    )
    return TopicDescription(name, _id(topic), partitions, await _settings(connection, name))


async def partitions_of(connection: Connection, name: str) -> list[int]:
    """The numbers of the partitions of a topic."""
    (topic,) = await _metadata(connection, [name])
    return sorted(int(each.partition_index) for each in topic.partitions)


async def create_topic(
    connection: Connection, name: str, partitions: int | None, settings: Mapping[str, str]
) -> TopicSummary:
    """Create a topic. Without a number of partitions the broker's own default counts."""
    topic = CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(-1 if partitions is None else partitions),
        replication_factor=_NO_REPLICAS,
        assignments=(),
        configs=tuple(
            CreatableTopicConfig(name=key, value=value) for key, value in settings.items()
        ),
    )
    request = CreateTopicsRequest(topics=(topic,), timeout=_timeout(connection))
    answer = await connection.ask(request, CreateTopicsResponse)
    (result,) = answer.topics
    check(result.error_code, f"topic {name} was not created", result.error_message)
    made = "" if result.topic_id is None else str(result.topic_id)
    return TopicSummary(name, made, result.num_partitions, is_internal=False)


async def delete_topic(connection: Connection, name: str) -> None:
    """Delete a topic with all of its records."""
    state = DeleteTopicState(name=TopicName(name), topic_id=None)
    request = DeleteTopicsRequest(topics=(state,), timeout=_timeout(connection))
    answer = await connection.ask(request, DeleteTopicsResponse)
    (result,) = answer.responses
    check(result.error_code, f"topic {name} was not deleted", result.error_message)


async def add_partitions(connection: Connection, name: str, partitions: int) -> None:
    """Give a topic more partitions: this many in all."""
    topic = CreatePartitionsTopic(name=TopicName(name), count=i32(partitions), assignments=None)
    request = CreatePartitionsRequest(
        topics=(topic,), timeout=_timeout(connection), validate_only=False
    )
    answer = await connection.ask(request, CreatePartitionsResponse)
    (result,) = answer.results
    check(result.error_code, f"topic {name} was not changed", result.error_message)


async def alter_settings(
    connection: Connection, name: str, settings: Mapping[str, str], unset: Iterable[str]
) -> None:
    """Set some settings of a topic, and give others back to the default."""
    changes = [
        AlterableConfig(name=key, config_operation=_SET, value=value)
        for key, value in settings.items()
    ]
    changes += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in unset]
    resource = AlterConfigsResource(
        resource_type=_TOPIC, resource_name=name, configs=tuple(changes)
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    answer = await connection.ask(request, IncrementalAlterConfigsResponse)
    (result,) = answer.responses
    check(result.error_code, f"topic {name} was not changed", result.error_message)


async def _metadata(
    connection: Connection, names: Sequence[str] | None
) -> tuple[MetadataResponseTopic, ...]:
    wanted = (
        None
        if names is None
        else tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in names)
    )
    request = MetadataRequest(
        topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    answer = await connection.ask(request, MetadataResponse)
    for each in answer.topics:
        check(each.error_code, f"topic {each.name}")
    if names is not None and len(answer.topics) != len(names):
        raise NotFound(f"topic {names[0]}: there is no such topic or partition")
    return answer.topics


async def _settings(connection: Connection, name: str) -> tuple[Setting, ...]:
    resource = DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=name, configuration_keys=None
    )
    answer = await connection.ask(
        DescribeConfigsRequest(resources=(resource,)), DescribeConfigsResponse
    )
    (result,) = answer.results
    check(result.error_code, f"topic {name}", result.error_message)
    return tuple(_setting(each) for each in sorted(result.configs, key=lambda each: each.name))


def _setting(each: DescribeConfigsResourceResult) -> Setting:
    return Setting(each.name, each.value, is_default=each.config_source != _OWN)


async def _sizes(connection: Connection, name: str, numbers: Sequence[int]) -> dict[int, int]:
    """The bytes of each partition, as far as the broker tells."""
    if not connection.offers(DescribeLogDirsRequest):
        return {}
    topic = DescribableLogDirTopic(
        topic=TopicName(name), partitions=tuple(i32(number) for number in numbers)
    )
    answer = await connection.ask(DescribeLogDirsRequest(topics=(topic,)), DescribeLogDirsResponse)
    return {
        int(partition.partition_index): int(partition.partition_size)
        for folder in answer.results
        for each in folder.topics
        if each.name == name
        for partition in each.partitions
    }


def _id(topic: MetadataResponseTopic) -> str:
    return "" if topic.topic_id is None else str(topic.topic_id)


def _timeout(connection: Connection) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=int(connection.timeout_s * 1000)))
