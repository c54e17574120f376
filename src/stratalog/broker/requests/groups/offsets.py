"""The offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete.

A topic is named by its name here, and its offsets are kept under its id: those of a topic that was
deleted are not seen any more, also if there is one of its name again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v8 import request as commit_request
from kio.schema.offset_commit.v8 import response as commit_response
from kio.schema.offset_delete.v0 import request as delete_request
from kio.schema.offset_delete.v0 import response as delete_response
from kio.schema.offset_fetch.v7 import request as fetch_one
from kio.schema.offset_fetch.v7 import response as fetched_one
from kio.schema.offset_fetch.v8 import request as fetch_many
from kio.schema.offset_fetch.v8 import response as fetched_many
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.groups import (
    Commit,
    Group,
    Identity,
    State,
    StoredOffset,
    subscribed_topics,
)
from stratalog.broker.requests.parts import NOT_THROTTLED
from stratalog.broker.requests.registry import Api

NO_OFFSET = StoredOffset("", -1, -1, "", 0)


async def offset_commit(
    context: BrokerContext,
    client: Client,  # noqa: ARG001 - a handler has this shape
    request: commit_request.OffsetCommitRequest,
) -> commit_response.OffsetCommitResponse:
    """Answered when the offsets are durable. Those that cannot be kept do not stop the others."""
    commits: list[Commit] = []
    errors: dict[tuple[str, int], ErrorCode] = {}
    for topic in request.topics:
        for part in topic.partitions:
            judged = _judge(context, topic.name, part)
            if isinstance(judged, Commit):
                commits.append(judged)
            else:
                errors[topic.name, part.partition_index] = judged
    who = Identity(
        request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
    )
    whole = await context.groups.commit(request.group_id, who, commits)
    return commit_response.OffsetCommitResponse(
        throttle_time=NOT_THROTTLED,
        topics=tuple(
            commit_response.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    commit_response.OffsetCommitResponsePartition(
                        partition_index=part.partition_index,
                        error_code=whole
                        if whole is not ErrorCode.none
                        else errors.get((topic.name, part.partition_index), ErrorCode.none),
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _judge(
    context: BrokerContext, name: str, part: commit_request.OffsetCommitRequestPartition
) -> Commit | ErrorCode:
    """What to keep, or why not."""
    metadata = part.committed_metadata or ""
    if len(metadata.encode()) > context.options.offset_metadata_bytes_max:
        return ErrorCode.offset_metadata_too_large
    topic = context.topics.get(name)
    if topic is None or topic.partition(part.partition_index) is None:
        return ErrorCode.unknown_topic_or_partition
    return Commit(
        topic=name,
        topic_id=topic.id,
        partition=part.partition_index,
        offset=part.committed_offset,
        leader_epoch=part.committed_leader_epoch,
        metadata=metadata,
    )


def _refuse_commit(
    request: commit_request.OffsetCommitRequest, error: ErrorCode
) -> commit_response.OffsetCommitResponse:
    return commit_response.OffsetCommitResponse(
        throttle_time=NOT_THROTTLED,
        topics=tuple(
            commit_response.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    commit_response.OffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=error
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """One partition of an answer to OffsetFetch."""

    topic: str
    partition: int
    offset: StoredOffset


def _find(
    context: BrokerContext, group: str, asked: Iterable[tuple[str, Sequence[int]]] | None
) -> Iterator[_Found]:
    """The offsets of the partitions that are asked for; of all that have one for ``None``."""
    offsets = context.groups.fetch(group)
    if asked is None:
        places = sorted((kept.topic, place, kept) for place, kept in offsets.items())
        for name, (topic_id, partition), kept in places:
            topic = context.topics.get(name)
            if topic is not None and topic.id == topic_id:
                yield _Found(name, partition, kept)
        return
    for name, partitions in asked:
        topic = context.topics.get(name)
        for partition in partitions:
            at = offsets.get((topic.id, partition)) if topic is not None else None
            yield _Found(name, partition, at or NO_OFFSET)


async def offset_fetch(
    context: BrokerContext,
    client: Client,  # noqa: ARG001
    request: fetch_many.OffsetFetchRequest,
) -> fetched_many.OffsetFetchResponse:
    """The offsets of several groups."""
    error = _fetch_error(context)
    groups = []
    for one in dict.fromkeys(request.groups):  # or a small request has a huge answer
        asked = one.topics
        found = _find(
            context,
            one.group_id,
            None if asked is None else [(each.name, each.partition_indexes) for each in asked],
        )
        groups.append(
            fetched_many.OffsetFetchResponseGroup(
                group_id=one.group_id,
                topics=() if error is not ErrorCode.none else _many_topics(found),
                error_code=error,
            )
        )
    return fetched_many.OffsetFetchResponse(throttle_time=NOT_THROTTLED, groups=tuple(groups))


def _many_topics(
    found: Iterable[_Found],
) -> tuple[fetched_many.OffsetFetchResponseTopics, ...]:
    return tuple(
        fetched_many.OffsetFetchResponseTopics(
            name=TopicName.parse(name),
            partitions=tuple(
                fetched_many.OffsetFetchResponsePartitions(
                    partition_index=i32.parse(one.partition),
                    committed_offset=i64.parse(one.offset.offset),
                    committed_leader_epoch=i32.parse(one.offset.leader_epoch),
                    metadata=one.offset.metadata,
                    error_code=ErrorCode.none,
                )
                for one in parts
            ),
        )
        for name, parts in groupby(found, key=lambda one: one.topic)
    )


def _fetch_error(context: BrokerContext) -> ErrorCode:
    """A coordinator that cannot promise anything gives no offsets: an old one would make its
    member read again what it has done."""
    is_down = context.groups.is_down
    return ErrorCode.coordinator_not_available if is_down else ErrorCode.none


async def offset_fetch_one(
    context: BrokerContext,
    client: Client,  # noqa: ARG001
    request: fetch_one.OffsetFetchRequest,
) -> fetched_one.OffsetFetchResponse:
    """The offsets of one group."""
    error = _fetch_error(context)
    asked = request.topics
    found = _find(
        context,
        request.group_id,
        None if asked is None else [(each.name, each.partition_indexes) for each in asked],
    )
    return fetched_one.OffsetFetchResponse(
        throttle_time=NOT_THROTTLED,
        topics=tuple(
            fetched_one.OffsetFetchResponseTopic(
                name=TopicName.parse(name),
                partitions=tuple(_one_partition(one, error) for one in parts),
            )
            for name, parts in groupby(found, key=lambda one: one.topic)
        ),
        error_code=error,
    )


def _one_partition(found: _Found, error: ErrorCode) -> fetched_one.OffsetFetchResponsePartition:
    """Version 1 has no other place for an error of the whole group."""
    at = found.offset if error is ErrorCode.none else NO_OFFSET
    return fetched_one.OffsetFetchResponsePartition(
        partition_index=i32.parse(found.partition),
        committed_offset=i64.parse(at.offset),
        committed_leader_epoch=i32.parse(at.leader_epoch),
        metadata=at.metadata,
        error_code=error,
    )


async def offset_delete(
    context: BrokerContext,
    client: Client,  # noqa: ARG001
    request: delete_request.OffsetDeleteRequest,
) -> delete_response.OffsetDeleteResponse:
    """Offsets of topics that no member reads are forgotten, durably."""
    group = context.groups.find(request.group_id)
    whole = _delete_error(request.group_id, group)
    if group is None or whole is not ErrorCode.none:
        return _refuse_delete(request, whole)
    errors = {topic.name: _topic_error(context, group, topic.name) for topic in request.topics}
    places = []
    for asked in request.topics:
        topic = context.topics.get(asked.name)
        if topic is not None and errors[asked.name] is ErrorCode.none:
            places += [(topic.id, part.partition_index) for part in asked.partitions]
    whole = await context.groups.delete_offsets(request.group_id, places)
    if whole is not ErrorCode.none:
        return _refuse_delete(request, whole)
    return delete_response.OffsetDeleteResponse(
        error_code=ErrorCode.none,
        throttle_time=NOT_THROTTLED,
        topics=tuple(
            delete_response.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    delete_response.OffsetDeleteResponsePartition(
                        partition_index=part.partition_index, error_code=errors[topic.name]
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _delete_error(name: str, group: Group | None) -> ErrorCode:
    if not name:
        return ErrorCode.invalid_group_id
    if group is None or group.state is State.DEAD:
        return ErrorCode.group_id_not_found
    if group.state is not State.EMPTY and subscribed_topics(group) is None:
        return ErrorCode.non_empty_group
    return ErrorCode.none


def _topic_error(context: BrokerContext, group: Group, name: str) -> ErrorCode:
    if context.topics.get(name) is None:
        return ErrorCode.unknown_topic_or_partition
    if group.state is not State.EMPTY and name in (subscribed_topics(group) or ()):
        return ErrorCode.group_subscribed_to_topic
    return ErrorCode.none


def _refuse_delete(
    request: delete_request.OffsetDeleteRequest,  # noqa: ARG001
    error: ErrorCode,
) -> delete_response.OffsetDeleteResponse:
    return delete_response.OffsetDeleteResponse(
        error_code=error, throttle_time=NOT_THROTTLED, topics=()
    )


APIS = (
    Api(
        "OffsetCommit",
        first=2,
        request=commit_request.OffsetCommitRequest,
        response=commit_response.OffsetCommitResponse,
        handle=offset_commit,
        refuse=_refuse_commit,
    ),
    Api(
        "OffsetFetch",
        first=1,
        request=fetch_one.OffsetFetchRequest,
        response=fetched_one.OffsetFetchResponse,
        handle=offset_fetch_one,
    ),
    Api(
        "OffsetFetch",
        first=8,
        request=fetch_many.OffsetFetchRequest,
        response=fetched_many.OffsetFetchResponse,
        handle=offset_fetch,
    ),
    Api(
        "OffsetDelete",
        first=0,
        request=delete_request.OffsetDeleteRequest,
        response=delete_response.OffsetDeleteResponse,
        handle=offset_delete,
        refuse=_refuse_delete,
    ),
)
