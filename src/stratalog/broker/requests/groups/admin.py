"""Groups for people and their tools: ListGroups, DescribeGroups, DeleteGroups."""

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_groups.v4.response import ListedGroup, ListGroupsResponse
from kio.schema.types import GroupId
from kio.static.primitive import i32

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.groups import Group, State
from stratalog.broker.requests.parts import NOT_ASKED, NOT_THROTTLED
from stratalog.broker.requests.registry import Api

GROUP_OPERATIONS = i32(sum(1 << bit for bit in (3, 6, 8)))
"""What may be done with a group, without authorization: read, delete, describe."""


async def list_groups(
    context: BrokerContext,
    client: Client,  # noqa: ARG001 - a handler has this shape
    request: ListGroupsRequest,
) -> ListGroupsResponse:
    """All groups, or those in some states. States are told apart without regard to case."""
    if context.groups.is_down:
        return _refuse_list(request, ErrorCode.coordinator_not_available)
    wanted = {state.lower() for state in request.states_filter}
    listed = []
    for name in context.groups.names():
        group = context.groups.find(name)
        if group is not None and (not wanted or group.state.lower() in wanted):
            listed.append(
                ListedGroup(
                    group_id=GroupId.parse(name),
                    protocol_type=group.protocol_type or "",
                    group_state=str(group.state),
                )
            )
    return ListGroupsResponse(
        throttle_time=NOT_THROTTLED, error_code=ErrorCode.none, groups=tuple(listed)
    )


def _refuse_list(request: ListGroupsRequest, error: ErrorCode) -> ListGroupsResponse:  # noqa: ARG001
    return ListGroupsResponse(throttle_time=NOT_THROTTLED, error_code=error, groups=())


async def describe_groups(
    context: BrokerContext,
    client: Client,  # noqa: ARG001
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse:
    """Each group with its members. One that is not there is described as dead."""
    is_asked = request.include_authorized_operations
    return DescribeGroupsResponse(
        throttle_time=NOT_THROTTLED,
        groups=tuple(
            _described(context, name, GROUP_OPERATIONS if is_asked else NOT_ASKED)
            for name in dict.fromkeys(request.groups)  # or a small request has a huge answer
        ),
    )


def _described(context: BrokerContext, name: GroupId, operations: i32) -> DescribedGroup:
    group = context.groups.find(name)
    error = ErrorCode.none
    if context.groups.is_down:
        group, error = None, ErrorCode.coordinator_not_available
    elif not name:
        error = ErrorCode.invalid_group_id
    if group is None:
        group = Group.dead()
    is_stable = group.state is State.STABLE
    return DescribedGroup(
        error_code=error,
        group_id=name,
        group_state=str(group.state),
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.roster
        ),
        authorized_operations=operations,
    )


async def delete_groups(
    context: BrokerContext,
    client: Client,  # noqa: ARG001
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse:
    """Empty groups are forgotten with their offsets, durably."""
    results = [
        DeletableGroupResult(group_id=name, error_code=await context.groups.delete(name))
        for name in request.groups_names
    ]
    return DeleteGroupsResponse(throttle_time=NOT_THROTTLED, results=tuple(results))


APIS = (
    Api(
        "ListGroups",
        first=0,
        request=ListGroupsRequest,
        response=ListGroupsResponse,
        handle=list_groups,
        refuse=_refuse_list,
    ),
    Api(
        "DescribeGroups",
        first=0,
        request=DescribeGroupsRequest,
        response=DescribeGroupsResponse,
        handle=describe_groups,
    ),
    Api(
        "DeleteGroups",
        first=0,
        request=DeleteGroupsRequest,
        response=DeleteGroupsResponse,
        handle=delete_groups,
    ),
)
