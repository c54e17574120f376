"""DeleteRecords: records below an offset become unreadable, durably."""

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i64

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.requests.parts import NOT_THROTTLED, found_partition, told
from stratalog.broker.requests.registry import Api
from stratalog.broker.topics import for_each
from stratalog.broker.wire import Refused
from stratalog.errors import StratalogError

TO_HIGH_WATERMARK = -1
NO_WATERMARK = i64(-1)
DELETED_AT_ONCE_MAX = 16


async def delete_records(
    context: BrokerContext, _: Client, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Move the starts of partitions forward, each for itself."""

    async def answer(asked: tuple[str, DeleteRecordsPartition]) -> DeleteRecordsPartitionResult:
        name, partition = asked
        code, start = ErrorCode.none, int(NO_WATERMARK)
        try:
            start = await _delete(context, name, partition.partition_index, partition.offset)
        except StratalogError as error:
            code, _ = told(error)
        return DeleteRecordsPartitionResult(
            partition_index=partition.partition_index, low_watermark=i64(start), error_code=code
        )

    asked = [(topic.name, each) for topic in request.topics for each in topic.partitions]
    results = iter(await for_each(answer, asked, DELETED_AT_ONCE_MAX))
    return DeleteRecordsResponse(
        throttle_time=NOT_THROTTLED,
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name, partitions=tuple(next(results) for _ in topic.partitions)
            )
            for topic in request.topics
        ),
    )


async def _delete(context: BrokerContext, name: str, number: int, offset: int) -> int:
    log = found_partition(context, name, number)
    if offset == TO_HIGH_WATERMARK:
        offset = log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        raise Refused(
            ErrorCode.offset_out_of_range,
            f"Offset {offset} does not lie between 0 and {log.high_watermark}.",
        )
    if offset <= log.log_start:
        return log.log_start
    return await log.delete_before(offset)


APIS = (
    Api(
        "DeleteRecords",
        first=0,
        request=DeleteRecordsRequest,
        response=DeleteRecordsResponse,
        handle=delete_records,
    ),
)
