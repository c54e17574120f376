"""Being in a group: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

The versions that were made for the new consumer protocol are not offered, so that clients of every
age speak the classic one.
"""

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3 import request as find_one
from kio.schema.find_coordinator.v3 import response as found_one
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import Coordinator, FindCoordinatorResponse
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.schema.leave_group.v2 import request as leave_alone
from kio.schema.leave_group.v2 import response as left_alone
from kio.schema.leave_group.v5.request import LeaveGroupRequest
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse
from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.groups import Identity, JoinCall, Joined, SyncCall
from stratalog.broker.requests.parts import NOT_THROTTLED
from stratalog.broker.requests.registry import Api

GROUP_KEY = 0
"""A coordinator is asked for by the name of a group. Other keys name transactions."""

KNOWN_ID_FROM = 4
SKIPS_ASSIGNMENT_FROM = 9
"""The versions of JoinGroup with which these begin."""


async def find_coordinator(
    context: BrokerContext,
    client: Client,  # noqa: ARG001 - a handler has this shape
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse:
    """This broker coordinates every group, and no transaction."""
    node = BrokerId.parse(context.node_id)
    host, port = context.advertised.host, i32.parse(context.advertised.port)
    if request.key_type != GROUP_KEY:
        node, host, port = BrokerId.parse(-1), "", i32.parse(-1)
    return FindCoordinatorResponse(
        throttle_time=NOT_THROTTLED,
        coordinators=tuple(
            Coordinator(
                key=key,
                node_id=node,
                host=host,
                port=port,
                error_code=_coordinator_error(request.key_type),
                error_message=_coordinator_message(request.key_type),
            )
            for key in request.coordinator_keys
        ),
    )


async def find_one_coordinator(
    context: BrokerContext,
    client: Client,  # noqa: ARG001
    request: find_one.FindCoordinatorRequest,
) -> found_one.FindCoordinatorResponse:
    """As ``find_coordinator``, for one key."""
    is_group = request.key_type == GROUP_KEY
    return found_one.FindCoordinatorResponse(
        throttle_time=NOT_THROTTLED,
        error_code=_coordinator_error(request.key_type),
        error_message=_coordinator_message(request.key_type),
        node_id=BrokerId.parse(context.node_id if is_group else -1),
        host=context.advertised.host if is_group else "",
        port=i32.parse(context.advertised.port if is_group else -1),
    )


def _coordinator_error(key_type: int) -> ErrorCode:
    """For transactions one that clients do not retry."""
    if key_type == GROUP_KEY:
        return ErrorCode.none
    return ErrorCode.transactional_id_authorization_failed


def _coordinator_message(key_type: int) -> str | None:
    return None if key_type == GROUP_KEY else "This broker has no transactions."


async def join_group(
    context: BrokerContext, client: Client, request: JoinGroupRequest
) -> JoinGroupResponse:
    """Answered when the next generation is there."""
    session_s = request.session_timeout.total_seconds()
    rebalance_s = request.rebalance_timeout.total_seconds()
    call = JoinCall(
        member_id=request.member_id,
        new_member_id="",
        protocol_type=request.protocol_type,
        protocols=tuple((one.name, one.metadata) for one in request.protocols),
        session_timeout_s=session_s,
        # Version 0 had but one time for both.
        rebalance_timeout_s=rebalance_s if rebalance_s >= 0 else session_s,
        instance_id=request.group_instance_id,
        client_id=client.client_id,
        client_host=client.host,
        must_know_its_id=client.version >= KNOWN_ID_FROM,
        may_skip_assignment=client.version >= SKIPS_ASSIGNMENT_FROM,
    )
    return _join_answer(await context.groups.join(request.group_id, call))


def _join_answer(joined: Joined) -> JoinGroupResponse:
    return JoinGroupResponse(
        throttle_time=NOT_THROTTLED,
        error_code=joined.error,
        generation_id=i32.parse(joined.generation),
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol or "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                metadata=one.metadata,
            )
            for one in joined.members
        ),
    )


def _refuse_join(request: JoinGroupRequest, error: ErrorCode) -> JoinGroupResponse:
    return _join_answer(Joined(error, request.member_id))


async def sync_group(
    context: BrokerContext,
    client: Client,  # noqa: ARG001
    request: SyncGroupRequest,
) -> SyncGroupResponse:
    """Answered when the leader has brought the assignments."""
    call = SyncCall(
        Identity(request.member_id, request.group_instance_id, request.generation_id),
        tuple((one.member_id, one.assignment) for one in request.assignments),
        request.protocol_type,
        request.protocol_name,
    )
    synced = await context.groups.sync(request.group_id, call)
    return SyncGroupResponse(
        throttle_time=NOT_THROTTLED,
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


def _refuse_sync(request: SyncGroupRequest, error: ErrorCode) -> SyncGroupResponse:  # noqa: ARG001
    return SyncGroupResponse(
        throttle_time=NOT_THROTTLED, error_code=error, assignment=b"", protocol_name=None
    )


async def heartbeat(
    context: BrokerContext,
    client: Client,  # noqa: ARG001
    request: HeartbeatRequest,
) -> HeartbeatResponse:
    """A member is alive, and hears whether it must join again."""
    who = Identity(request.member_id, request.group_instance_id, request.generation_id)
    error = context.groups.heartbeat(request.group_id, who)
    return HeartbeatResponse(throttle_time=NOT_THROTTLED, error_code=error)


def _refuse_heartbeat(request: HeartbeatRequest, error: ErrorCode) -> HeartbeatResponse:  # noqa: ARG001
    return HeartbeatResponse(throttle_time=NOT_THROTTLED, error_code=error)


async def leave_group(
    context: BrokerContext,
    client: Client,  # noqa: ARG001
    request: LeaveGroupRequest,
) -> LeaveGroupResponse:
    """Several members go, or are sent away by their static names."""
    leaving = [Identity(one.member_id, one.group_instance_id) for one in request.members]
    errors = await context.groups.leave(request.group_id, leaving)
    whole = next((error for error in errors if error in _OF_THE_WHOLE), ErrorCode.none)
    return LeaveGroupResponse(
        throttle_time=NOT_THROTTLED,
        error_code=whole,
        members=()
        if whole is not ErrorCode.none
        else tuple(
            MemberResponse(
                member_id=one.member_id, group_instance_id=one.instance_id, error_code=error
            )
            for one, error in zip(leaving, errors, strict=True)
        ),
    )


_OF_THE_WHOLE = (ErrorCode.coordinator_not_available, ErrorCode.invalid_group_id)


def _refuse_leave(request: LeaveGroupRequest, error: ErrorCode) -> LeaveGroupResponse:  # noqa: ARG001
    return LeaveGroupResponse(throttle_time=NOT_THROTTLED, error_code=error, members=())


async def leave_group_alone(
    context: BrokerContext,
    client: Client,  # noqa: ARG001
    request: leave_alone.LeaveGroupRequest,
) -> left_alone.LeaveGroupResponse:
    """One member goes."""
    [error] = await context.groups.leave(request.group_id, [Identity(request.member_id)])
    return left_alone.LeaveGroupResponse(throttle_time=NOT_THROTTLED, error_code=error)


def _refuse_leave_alone(
    request: leave_alone.LeaveGroupRequest,  # noqa: ARG001
    error: ErrorCode,
) -> left_alone.LeaveGroupResponse:
    return left_alone.LeaveGroupResponse(throttle_time=NOT_THROTTLED, error_code=error)


APIS = (
    Api(
        "FindCoordinator",
        first=0,
        request=find_one.FindCoordinatorRequest,
        response=found_one.FindCoordinatorResponse,
        handle=find_one_coordinator,
    ),
    Api(
        "FindCoordinator",
        first=4,
        request=FindCoordinatorRequest,
        response=FindCoordinatorResponse,
        handle=find_coordinator,
    ),
    Api(
        "JoinGroup",
        first=0,
        request=JoinGroupRequest,
        response=JoinGroupResponse,
        handle=join_group,
        refuse=_refuse_join,
    ),
    Api(
        "SyncGroup",
        first=0,
        request=SyncGroupRequest,
        response=SyncGroupResponse,
        handle=sync_group,
        refuse=_refuse_sync,
    ),
    Api(
        "Heartbeat",
        first=0,
        request=HeartbeatRequest,
        response=HeartbeatResponse,
        handle=heartbeat,
        refuse=_refuse_heartbeat,
    ),
    Api(
        "LeaveGroup",
        first=0,
        request=leave_alone.LeaveGroupRequest,
        response=left_alone.LeaveGroupResponse,
        handle=leave_group_alone,
        refuse=_refuse_leave_alone,
    ),
    Api(
        "LeaveGroup",
        first=3,
        request=LeaveGroupRequest,
        response=LeaveGroupResponse,
        handle=leave_group,
        refuse=_refuse_leave,
    ),
)
