"""What clients of a simulated broker ask, and how they take its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from kio.schema.create_topics.v5.request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v5.response import CreateTopicsResponse
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_records.v2.response import DeleteRecordsResponse
from kio.schema.delete_topics.v5.request import DeleteTopicsRequest
from kio.schema.delete_topics.v5.response import DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v11.response import FetchResponse
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.list_offsets.v7.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v8.response import OffsetCommitResponse
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse
from kio.schema.produce.v8.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.produce.v8.response import ProduceResponse
from kio.schema.types import BrokerId, GroupId, TopicName
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

from simulation.wire_client import WireClient
from stratalog.partitions import Batch, NewRecord, decode_records, encode_batch

PARTITIONS = 2
LATEST, EARLIEST = -1, -2
TOPIC_RESOURCE, SET = i8(2), i8(0)
EVERYTHING = i32(2**31 - 1)
FATAL = {
    ErrorCode.out_of_order_sequence_number,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.unknown_producer_id,
}

Values = dict[int, bytes]
"""By their offsets."""


class Refused(Exception):
    """The broker answered with an error."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code

    @property
    def is_fatal(self) -> bool:
        """An idempotent producer gives up."""
        return self.code in FATAL


class Found(NamedTuple):
    """What is in one partition."""

    start: int
    end: int
    values: Values


def _check(code: int) -> None:
    if code:
        raise Refused(ErrorCode(code))


def _ms(number: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=number))


class Client:
    """One client, over one connection."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    def leave(self) -> None:
        """Without waiting for answers."""
        self._wire.close()

    # Topics

    async def create_topic(self, name: str, partitions: int) -> None:
        configs = (CreatableTopicConfig(name="retention.ms", value="-1"),)
        topic = CreatableTopic(
            name=TopicName(name),
            num_partitions=i32(partitions),
            replication_factor=i16(1),
            assignments=(),
            configs=configs,
        )
        answer = await self._wire.ask(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse)
        _check(answer.topics[0].error_code)

    async def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=(TopicName(name),), timeout=_ms(5_000))
        answer = await self._wire.ask(request, DeleteTopicsResponse)
        _check(answer.responses[0].error_code)

    async def alter(self, name: str, settings: Mapping[str, str]) -> None:
        configs = tuple(
            AlterableConfig(name=key, config_operation=SET, value=value)
            for key, value in settings.items()
        )
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs
        )
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        answer = await self._wire.ask(request, IncrementalAlterConfigsResponse)
        _check(answer.responses[0].error_code)

    # Records

    async def producer_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout=_ms(0))
        answer = await self._wire.ask(request, InitProducerIdResponse)
        _check(answer.error_code)
        return int(answer.producer_id)

    async def produce(self, name: str, partition: int, batch: bytes) -> int:
        """The offset of the first record, when all are durable."""
        data = PartitionProduceData(index=i32(partition), records=Records(batch))
        topic = TopicProduceData(name=TopicName(name), partition_data=(data,))
        request = ProduceRequest(acks=i16(-1), timeout=_ms(30_000), topic_data=(topic,))
        answer = await self._wire.ask(request, ProduceResponse)
        said = answer.responses[0].partition_responses[0]
        _check(said.error_code)
        return int(said.base_offset)

    async def produce_values(self, name: str, partition: int, values: Sequence[bytes]) -> int:
        batch = encode_batch([NewRecord(None, value) for value in values])
        return await self.produce(name, partition, bytes(batch))

    async def offsets(self, name: str, partition: int) -> tuple[int, int]:
        """The log's start and its end."""
        return (
            await self._offset(name, partition, EARLIEST),
            await self._offset(name, partition, LATEST),
        )

    async def _offset(self, name: str, partition: int, time: int) -> int:
        wanted = ListOffsetsPartition(partition_index=i32(partition), timestamp=i64(time))
        topic = ListOffsetsTopic(name=TopicName(name), partitions=(wanted,))
        request = ListOffsetsRequest(
            replica_id=BrokerId(-1), isolation_level=i8(0), topics=(topic,)
        )
        answer = await self._wire.ask(request, ListOffsetsResponse)
        said = answer.topics[0].partitions[0]
        _check(said.error_code)
        return int(said.offset)

    async def fetch(self, name: str, partition: int, offset: int) -> Found:
        """What one answer has, from an offset on."""
        wanted = FetchPartition(
            partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(4096)
        )
        topic = FetchTopic(topic=TopicName(name), partitions=(wanted,))
        request = FetchRequest(
            max_wait=_ms(100),
            min_bytes=i32(1),
            max_bytes=EVERYTHING,
            topics=(topic,),
            forgotten_topics_data=(),
        )
        answer = await self._wire.ask(request, FetchResponse)
        said = answer.responses[0].partitions[0]
        _check(said.error_code)
        return Found(
            int(said.log_start_offset),
            int(said.high_watermark),
            _values_of(bytes(said.records or b""), offset),
        )

    async def delete_records(self, name: str, partition: int, offset: int) -> None:
        wanted = DeleteRecordsPartition(partition_index=i32(partition), offset=i64(offset))
        topic = DeleteRecordsTopic(name=TopicName(name), partitions=(wanted,))
        request = DeleteRecordsRequest(topics=(topic,), timeout=_ms(5_000))
        answer = await self._wire.ask(request, DeleteRecordsResponse)
        _check(answer.topics[0].partitions[0].error_code)

    async def everything(self, name: str) -> list[Found] | None:
        """All partitions of a topic from start to end; ``None`` if there is no such topic."""
        try:
            return [await self._whole(name, number) for number in range(PARTITIONS)]
        except Refused as error:
            if error.code is ErrorCode.unknown_topic_or_partition:
                return None
            raise

    async def _whole(self, name: str, partition: int) -> Found:
        start, end = await self.offsets(name, partition)
        values: Values = {}
        at = start
        while at < end:
            try:
                found = await self.fetch(name, partition, at)
            except Refused as error:
                if error.code is not ErrorCode.offset_out_of_range:
                    raise
                start, end = await self.offsets(name, partition)  # retention came by
                values = {offset: value for offset, value in values.items() if offset >= start}
                at = max(at, start)
                continue
            assert found.values, f"nothing of {name}-{partition} at {at}, before its end at {end}"
            values |= found.values
            at = max(found.values) + 1
        return Found(start, end, values)

    # Groups

    async def commit(self, group: str, name: str, offset: int) -> None:
        """Of partition 0, as a consumer that is no member."""
        partition = OffsetCommitRequestPartition(
            partition_index=i32(0), committed_offset=i64(offset), committed_metadata=None
        )
        topic = OffsetCommitRequestTopic(name=TopicName(name), partitions=(partition,))
        request = OffsetCommitRequest(group_id=GroupId(group), member_id="", topics=(topic,))
        answer = await self._wire.ask(request, OffsetCommitResponse)
        _check(answer.topics[0].partitions[0].error_code)

    async def committed(self, group: str) -> dict[str, int]:
        """The offsets of a group, by topic."""
        request = OffsetFetchRequest(group_id=GroupId(group), topics=None)
        answer = await self._wire.ask(request, OffsetFetchResponse)
        _check(answer.error_code)
        return {
            str(topic.name): int(topic.partitions[0].committed_offset) for topic in answer.topics
        }


def _values_of(data: bytes, from_offset: int) -> Values:
    values: Values = {}
    at = 0
    while at < len(data):
        batch = Batch.over(memoryview(data)[at:])
        at += len(batch.data)
        for record in decode_records(batch, batch.base_offset):
            if record.offset >= from_offset:
                assert record.value is not None
                values[record.offset] = record.value
    return values
