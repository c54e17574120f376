"""What can be asked about consumer groups, and done with them, over the wire."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeleteGroupsResponse
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_groups.v4.response import ListGroupsResponse
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v8.response import OffsetCommitResponse
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from stratalog.broker.admin.connection import Connection
from stratalog.broker.admin.offsets import EARLIEST, LATEST, offsets_at
from stratalog.broker.admin.refusal import check
from stratalog.broker.wire import Malformed, read_payload
from stratalog.errors import Conflict, NotFound

DEAD = "Dead"
EMPTY = "Empty"
_NOBODY = i32(-1)
"""The generation of a commit that no member makes."""

_VERSION_BYTES = 2

Place = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in a list."""

    group: str
    state: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group, and what it was given to read."""

    member: str
    instance: str | None
    client: str
    host: str
    assigned: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group is in a partition. ``lag`` is what it has still to read."""

    topic: str
    partition: int
    committed: int | None
    start: int | None
    end: int | None
    member: str | None

    @property
    def lag(self) -> int | None:
        """None if nothing was committed, or if the partition is gone."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - max(self.committed, self.start or 0))


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members, and how far it is in every partition that it has touched."""

    group: str
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]
    progress: tuple[Progress, ...]


async def list_groups(connection: Connection) -> list[GroupSummary]:
    """All groups, by name."""
    answer = await connection.ask(ListGroupsRequest(), ListGroupsResponse)
    check(answer.error_code, "the groups")
    return sorted(
        (
            GroupSummary(str(each.group_id), each.group_state, each.protocol_type)
            for each in answer.groups
        ),
        key=lambda group: group.group,
    )


async def describe_group(connection: Connection, group: str) -> GroupDescription:
    """One group, with the ends of its partitions as they are now."""
    found = await _described(connection, group)
    committed = await committed_offsets(connection, group)
    if found.group_state == DEAD and not committed:
        raise NotFound(
            f"group {group}: there is no such group",
            hint="`stratalog groups list` shows the groups.",
        )
    members = tuple(_member(each) for each in found.members)
    readers = {place: each.member for each in members for place in each.assigned}
    starts, ends = await _ends(connection, {*committed, *readers})
    progress = tuple(
        Progress(
            topic=topic,
            partition=partition,
            committed=committed.get((topic, partition)),
            start=starts.get((topic, partition)),
            end=ends.get((topic, partition)),
            member=readers.get((topic, partition)),
        )
        for topic, partition in sorted({*committed, *readers})
    )
    return GroupDescription(group, found.group_state, found.protocol_data, members, progress)


async def committed_offsets(connection: Connection, group: str) -> dict[Place, int]:
    """What the group has committed, wherever it has."""
    request = OffsetFetchRequest(group_id=GroupId(group), topics=None, require_stable=False)
    answer = await connection.ask(request, OffsetFetchResponse)
    check(answer.error_code, f"group {group}")
    found: dict[Place, int] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            check(each.error_code, f"partition {each.partition_index} of topic {topic.name}")
            if each.committed_offset >= 0:
                found[str(topic.name), int(each.partition_index)] = int(each.committed_offset)
    return found


async def commit_offsets(connection: Connection, group: str, offsets: Mapping[Place, int]) -> None:
    """Set the committed offsets of a group that has no members."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic[topic].append(
            OffsetCommitRequestPartition(
                partition_index=i32(partition), committed_offset=i64(offset), committed_metadata=""
            )
        )
    request = OffsetCommitRequest(
        group_id=GroupId(group),
        generation_id_or_member_epoch=_NOBODY,
        member_id="",
        topics=tuple(
            OffsetCommitRequestTopic(name=TopicName(topic), partitions=tuple(partitions))
            for topic, partitions in by_topic.items()
        ),
    )
    answer = await connection.ask(request, OffsetCommitResponse)
    for found in answer.topics:
        for each in found.partitions:
            about = f"the offset of partition {each.partition_index} of topic {found.name}"
            check(each.error_code, f"{about} was not set")


async def require_no_members(connection: Connection, group: str) -> None:
    """Refuse to touch the offsets of a group whose members would go on from their own."""
    found = await _described(connection, group)
    if found.group_state not in (EMPTY, DEAD):
        raise Conflict(
            f"group {group} has members: it is {found.group_state}",
            hint="Stop its consumers, wait until they have left, then try again.",
        )


async def delete_group(connection: Connection, group: str) -> None:
    """Delete a group without members, with its offsets."""
    request = DeleteGroupsRequest(groups_names=(GroupId(group),))
    answer = await connection.ask(request, DeleteGroupsResponse)
    (result,) = answer.results
    check(result.error_code, f"group {group} was not deleted")


async def _described(connection: Connection, group: str) -> DescribedGroup:
    request = DescribeGroupsRequest(groups=(GroupId(group),), include_authorized_operations=False)
    answer = await connection.ask(request, DescribeGroupsResponse)
    (found,) = answer.groups
    check(found.error_code, f"group {group}")
    return found


async def _ends(
    connection: Connection, places: set[Place]
) -> tuple[dict[Place, int], dict[Place, int]]:
    """The starts and ends of these partitions. One whose topic is gone has none."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(places):
        numbers[topic].append(partition)
    starts: dict[Place, int] = {}
    ends: dict[Place, int] = {}
    for topic, partitions in numbers.items():
        try:
            first = await offsets_at(connection, topic, dict.fromkeys(partitions, EARLIEST))
            last = await offsets_at(connection, topic, dict.fromkeys(partitions, LATEST))
        except NotFound:
            continue
        starts.update({(topic, number): offset for number, offset in first.items()})
        ends.update({(topic, number): offset for number, offset in last.items()})
    return starts, ends


def _member(each: DescribedGroupMember) -> MemberDescription:
    return MemberDescription(
        member=each.member_id,
        instance=each.group_instance_id,
        client=each.client_id,
        host=each.client_host,
        assigned=assigned_in(each.member_assignment),
    )


def assigned_in(assignment: bytes) -> tuple[Place, ...]:
    """The partitions in a consumer's assignment. What is none, or of another kind, has none.

    A newer version only adds to the end of an older one, so the oldest reads them all.
    """
    try:
        found = read_payload(ConsumerProtocolAssignment, memoryview(assignment), _VERSION_BYTES)
    except Malformed:
        return ()
    return tuple(
        sorted(
            (str(each.topic), int(number))
            for each in found.assigned_partitions
            for number in each.partitions
        )
    )
