"""DescribeProducers: the idempotent producers that a partition knows."""

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId
from kio.static.primitive import i32, i64

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.requests.parts import NOT_THROTTLED
from stratalog.broker.requests.registry import Api
from stratalog.partitions import PartitionLog
from stratalog.partitions import ProducerState as Known


async def describe_producers(
    context: BrokerContext,
    client: Client,  # noqa: ARG001
    request: DescribeProducersRequest,
) -> DescribeProducersResponse:
    """Of each partition that is asked for; a partition that is not there has its own error."""
    return DescribeProducersResponse(
        throttle_time=NOT_THROTTLED,
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(
                    _described(index, context.topics.partition(topic.name, index))
                    for index in dict.fromkeys(topic.partition_indexes)
                ),
            )
            for topic in dict.fromkeys(request.topics)  # or a small request has a huge answer
        ),
    )


def _described(index: i32, log: PartitionLog | None) -> PartitionResponse:
    if log is None:
        code = ErrorCode.unknown_topic_or_partition
        return PartitionResponse(partition_index=index, error_code=code, active_producers=())
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.none,
        active_producers=tuple(map(_state, log.producers())),
    )


def _state(known: Known) -> ProducerState:
    return ProducerState(
        producer_id=ProducerId(known.producer_id),
        producer_epoch=i32(known.epoch),
        last_sequence=i32(known.last_sequence),
        last_timestamp=i64(known.time_us // 1000),
        coordinator_epoch=i32(-1),
        current_txn_start_offset=i64(-1),
    )


DESCRIBE_PRODUCERS = Api(
    "DescribeProducers",
    first=0,
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
    handle=describe_producers,
)
