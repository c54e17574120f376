"""DescribeCluster: the brokers, of which there is one. DescribeLogDirs: what partitions keep."""

from collections.abc import Iterable

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.requests.parts import CLUSTER_OPERATIONS, NOT_ASKED, NOT_THROTTLED
from stratalog.broker.requests.registry import Api
from stratalog.broker.topics import Topic

BROKERS = i8(1)
"""Endpoints that clients use, not those of controllers."""


async def describe_cluster(
    context: BrokerContext, _: Client, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Name this broker; it is the controller, too."""
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            throttle_time=NOT_THROTTLED,
            error_code=ErrorCode.mismatched_endpoint_type,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an "
            "endpoint of another type.",
            endpoint_type=BROKERS,
            cluster_id="",
            brokers=(),
        )
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        throttle_time=NOT_THROTTLED,
        error_code=ErrorCode.none,
        endpoint_type=BROKERS,
        cluster_id=context.cluster_id,
        controller_id=BrokerId(context.node_id),
        brokers=(
            DescribeClusterBroker(
                broker_id=BrokerId(context.node_id),
                host=context.advertised.host,
                port=i32(context.advertised.port),
                is_fenced=False,
            ),
        ),
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
    )


async def describe_log_dirs(
    context: BrokerContext, _: Client, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """The sizes of the partitions that are asked for. Those that are not there are left out, as
    Kafka leaves them out."""
    if request.topics is None:
        topics = [_sizes(each, range(len(each.partitions))) for each in context.topics.all()]
    else:
        topics = [
            _sizes(found, asked.partitions)
            for asked in request.topics
            if (found := context.topics.get(asked.topic)) is not None
        ]
    return DescribeLogDirsResponse(
        throttle_time=NOT_THROTTLED,
        error_code=ErrorCode.none,
        results=(
            DescribeLogDirsResult(
                error_code=ErrorCode.none,
                log_dir=str(context.options.data),
                topics=tuple(topics),
            ),
        ),
    )


def _sizes(topic: Topic, numbers: Iterable[int]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=TopicName(topic.name),
        partitions=tuple(
            DescribeLogDirsPartition(
                partition_index=i32(number),
                partition_size=i64(log.size),
                offset_lag=i64(0),
                is_future_key=False,
            )
            for number in numbers
            if (log := topic.partition(number)) is not None
        ),
    )


APIS = (
    Api(
        "DescribeCluster",
        first=0,
        request=DescribeClusterRequest,
        response=DescribeClusterResponse,
        handle=describe_cluster,
    ),
    Api(
        "DescribeLogDirs",
        first=1,
        request=DescribeLogDirsRequest,
        response=DescribeLogDirsResponse,
        handle=describe_log_dirs,
    ),
)
