"""CreatePartitions: more partitions for topics that are there."""

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kio.schema.errors import ErrorCode

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.requests.create_topics import PARTITIONS_PER_REQUEST_MAX
from stratalog.broker.requests.parts import NOT_THROTTLED, repeated, told
from stratalog.broker.requests.registry import Api
from stratalog.broker.topics import check_placement, for_each
from stratalog.broker.wire import Refused
from stratalog.errors import StratalogError

GROWN_AT_ONCE_MAX = 16


async def create_partitions(
    context: BrokerContext, _: Client, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions where that can be; say of the rest why it cannot."""
    twice = repeated(topic.name for topic in request.topics)

    async def answer(asked: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
        try:
            if asked.name in twice:
                raise Refused(ErrorCode.invalid_request, "Duplicate topic name.")
            _check(context, asked)
            if not request.validate_only:
                await context.topics.grow(asked.name, asked.count)
        except StratalogError as error:
            code, message = told(error)
            return CreatePartitionsTopicResult(
                name=asked.name, error_code=code, error_message=message
            )
        return CreatePartitionsTopicResult(name=asked.name, error_code=ErrorCode.none)

    wanted = list({topic.name: topic for topic in request.topics}.values())
    return CreatePartitionsResponse(
        throttle_time=NOT_THROTTLED,
        results=tuple(await for_each(answer, wanted, GROWN_AT_ONCE_MAX)),
    )


def _check(context: BrokerContext, asked: CreatePartitionsTopic) -> None:
    topic = context.topics.check_growth(asked.name, asked.count)
    further = asked.count - len(topic.partitions)
    if further > PARTITIONS_PER_REQUEST_MAX:
        raise Refused(
            ErrorCode.policy_violation,
            f"Excessively large number of partitions per request: {further}.",
            hint=f"Ask for at most {PARTITIONS_PER_REQUEST_MAX} in one request.",
        )
    if asked.assignments is None:
        return
    if len(asked.assignments) != further:
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            f"Attempted to add {further} additional partition(s), but only "
            f"{len(asked.assignments)} assignment(s) were specified.",
        )
    for each in asked.assignments:
        check_placement(each.broker_ids, context.node_id)


APIS = (
    Api(
        "CreatePartitions",
        first=0,
        request=CreatePartitionsRequest,
        response=CreatePartitionsResponse,
        handle=create_partitions,
    ),
)
