"""Where partitions begin and end, and which offset has a time."""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.list_offsets.v7.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from stratalog.broker.admin.connection import Connection
from stratalog.broker.admin.refusal import check
from stratalog.errors import Unavailable

LATEST = -1
EARLIEST = -2
_NO_REPLICA = BrokerId(-1)
_UNCOMMITTED = i8(0)


async def offsets_at(
    connection: Connection, topic: str, times_ms: Mapping[int, int]
) -> dict[int, int]:
    """The offset of each partition for its time: ``EARLIEST``, ``LATEST``, or milliseconds.

    For milliseconds it is the first record at or after that time, and -1 if there is none.
    """
    partitions = tuple(
        ListOffsetsPartition(partition_index=i32(number), timestamp=i64(time_ms))
        for number, time_ms in times_ms.items()
    )
    request = ListOffsetsRequest(
        replica_id=_NO_REPLICA,
        isolation_level=_UNCOMMITTED,
        topics=(ListOffsetsTopic(name=TopicName(topic), partitions=partitions),),
    )
    answer = await connection.ask(request, ListOffsetsResponse)
    found: dict[int, int] = {}
    for each in answer.topics:
        for partition in each.partitions:
            check(partition.error_code, f"partition {partition.partition_index} of topic {topic}")
            found[int(partition.partition_index)] = int(partition.offset)
    missing = [number for number in times_ms if number not in found]
    if missing:
        raise Unavailable(f"the broker left partition {missing[0]} of {topic} out of its answer")
    return found
