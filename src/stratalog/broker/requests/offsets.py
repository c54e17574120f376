"""Where a partition begins and ends, the offset for a time, and where an epoch ended.

ListOffsets: versions 1 to 7; later ones add times that only tiered storage has. There are no
transactions, so what is committed is also stable: both isolation levels get the same answer.
OffsetForLeaderEpoch: by it a consumer finds out whether its log was cut.
"""

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v7.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kio.static.primitive import i32, i64

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.requests.parts import NOT_THROTTLED, found_partition, repeated, told
from stratalog.broker.requests.registry import Api
from stratalog.broker.topics import for_each
from stratalog.broker.wire import Refused
from stratalog.errors import StratalogError
from stratalog.partitions import PartitionLog, TimedOffset

LATEST = -1
EARLIEST = -2
LARGEST_TIME = -3
LARGEST_TIME_VERSION_MIN = 7
NOTHING = TimedOffset(offset=-1, time_ms=-1, epoch=-1)
LOOKED_UP_AT_ONCE_MAX = 16
NOT_GIVEN = -1
UNDEFINED = (-1, -1)


async def list_offsets(
    context: BrokerContext, client: Client, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """Look up each partition's offset."""
    asked = [(topic.name, each) for topic in request.topics for each in topic.partitions]
    twice = repeated((name, each.partition_index) for name, each in asked)

    async def answer(one: tuple[str, ListOffsetsPartition]) -> ListOffsetsPartitionResponse:
        name, partition = one
        code, found = ErrorCode.none, NOTHING
        try:
            if (name, partition.partition_index) in twice:
                raise Refused(ErrorCode.invalid_request, "A partition is asked for twice.")
            found = await _found(context, client, name, partition)
        except StratalogError as error:
            code, _ = told(error)
        return ListOffsetsPartitionResponse(
            partition_index=partition.partition_index,
            error_code=code,
            timestamp=i64(found.time_ms),
            offset=i64(found.offset),
            leader_epoch=i32(found.epoch),
        )

    results = iter(await for_each(answer, asked, LOOKED_UP_AT_ONCE_MAX))
    return ListOffsetsResponse(
        throttle_time=NOT_THROTTLED,
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name, partitions=tuple(next(results) for _ in topic.partitions)
            )
            for topic in request.topics
        ),
    )


async def _found(
    context: BrokerContext, client: Client, name: str, asked: ListOffsetsPartition
) -> TimedOffset:
    log = found_partition(context, name, asked.partition_index)
    check_epoch(log, asked.current_leader_epoch)
    return await _at(log, asked.timestamp, client.version)


async def _at(log: PartitionLog, time: int, version: int) -> TimedOffset:
    if time == LATEST:
        return TimedOffset(offset=log.high_watermark, time_ms=-1, epoch=log.epoch)
    if time == EARLIEST:
        return TimedOffset(offset=log.log_start, time_ms=-1, epoch=-1)
    if time == LARGEST_TIME and version >= LARGEST_TIME_VERSION_MIN:
        return await log.offset_of_latest_time() or NOTHING
    if time < 0:
        raise Refused(ErrorCode.unsupported_version, f"{time} names no time of this version.")
    return await log.offset_for_time(time) or NOTHING


def check_epoch(log: PartitionLog, current: int) -> None:
    """Refuse a client whose metadata is older than the partition's epoch, or newer."""
    if current == NOT_GIVEN or current == log.epoch:
        return
    if current < log.epoch:
        raise Refused(
            ErrorCode.fenced_leader_epoch,
            f"The leader's epoch is {log.epoch}, {current} is over.",
            hint="Fetch the metadata again.",
        )
    raise Refused(
        ErrorCode.unknown_leader_epoch,
        f"The leader's epoch is {log.epoch}, {current} is not known here.",
        hint="Try again.",
    )


async def leader_epochs(
    context: BrokerContext, _: Client, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Say where epochs ended."""
    return OffsetForLeaderEpochResponse(
        throttle_time=NOT_THROTTLED,
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(_end(context, topic.topic, each) for each in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _end(context: BrokerContext, name: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    code, (epoch, end) = ErrorCode.none, UNDEFINED
    try:
        log = found_partition(context, name, asked.partition)
        check_epoch(log, asked.current_leader_epoch)
        epoch, end = log.end_of_epoch(asked.leader_epoch) or UNDEFINED
    except StratalogError as error:
        code, _ = told(error)
    return EpochEndOffset(
        error_code=code, partition=asked.partition, leader_epoch=i32(epoch), end_offset=i64(end)
    )


APIS = (
    Api(
        "ListOffsets",
        first=1,
        request=ListOffsetsRequest,
        response=ListOffsetsResponse,
        handle=list_offsets,
    ),
    Api(
        "OffsetForLeaderEpoch",
        first=2,
        request=OffsetForLeaderEpochRequest,
        response=OffsetForLeaderEpochResponse,
        handle=leader_epochs,
    ),
)
