"""ListOffsets and OffsetForLeaderEpoch at the wire, in every version; DeleteRecords."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from broker.plugged import Client, PluggedBroker, play
from broker.requests.fetching import NOW_MS, filled
from stratalog.broker.wire.translate import shape_of
from stratalog.partitions import DEFAULT_LIMITS, NewRecord, check_batch, encode_batch

LIST_OFFSETS, DELETE_RECORDS, LEADER_EPOCH = 2, 21, 23
LATEST, EARLIEST, LARGEST_TIME = -1, -2, -3


def element(schema: Any, name: str) -> Any:
    return shape_of(schema.__dataclass_fields__[name].type).inner


def known(schema: Any, **given: Any) -> dict[str, Any]:
    """Those that this version has."""
    return {name: value for name, value in given.items() if name in schema.__annotations__}


async def asked(client: Client, key: int, version: int, topics: Any, **given: Any) -> list[Any]:
    """What is said of all partitions."""
    schema: Any = load_request_schema(key, version)
    request = schema(topics=topics, **known(schema, **given))
    answer: Any = await client.ask(request, load_response_schema(key, version))
    assert getattr(answer, "throttle_time", None) is None or not answer.throttle_time
    return [each for topic in answer.topics for each in topic.partitions]


async def listed(
    client: Client, time: int, version: int = 7, *, topic: str = "t", epoch: int = -1, **given: Any
) -> Any:
    """What ListOffsets says of partition 0."""
    of_topic = element(load_request_schema(LIST_OFFSETS, version), "topics")
    of_partition = element(of_topic, "partitions")
    partition = of_partition(
        partition_index=0, timestamp=time, **known(of_partition, current_leader_epoch=epoch)
    )
    topics = (of_topic(name=topic, partitions=(partition,)),)
    isolation = given.get("isolation", 0)
    (found,) = await asked(
        client, LIST_OFFSETS, version, topics, replica_id=-1, isolation_level=isolation
    )
    return found


async def with_times(broker: PluggedBroker, *times: int) -> None:
    """One batch with a record for each time."""
    data = encode_batch([NewRecord(None, b"v", NOW_MS + each) for each in times])
    await broker.log("t").append(check_batch(data, DEFAULT_LIMITS, NOW_MS))


@pytest.mark.parametrize("version", range(1, 8))
def test_start_end_and_times_are_found_in_every_version(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await with_times(broker, 0, 10)
        await with_times(broker, 5, 30, 20)
        client = broker.client()
        for time, offset, at in [
            (LATEST, 5, -1),
            (EARLIEST, 0, -1),
            (NOW_MS - 9, 0, NOW_MS),
            (NOW_MS + 1, 1, NOW_MS + 10),
            (NOW_MS + 11, 3, NOW_MS + 30),
            (NOW_MS + 31, -1, -1),
        ]:
            found = await listed(client, time, version)
            assert found.error_code is ErrorCode.none
            assert (found.offset, found.timestamp) == (offset, at)

    play(test)


@pytest.mark.parametrize("version", range(1, 8))
def test_the_largest_time_is_found_by_versions_that_know_it(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await with_times(broker, 5, 30, 20)
        await with_times(broker, 10)
        found = await listed(broker.client(), LARGEST_TIME, version)
        if version < 7:
            assert found.error_code is ErrorCode.unsupported_version
        else:
            assert (found.offset, found.timestamp) == (1, NOW_MS + 30)

    play(test)


def test_an_empty_log_has_its_ends_and_no_times() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        for time, offset in ((LATEST, 0), (EARLIEST, 0), (NOW_MS, -1), (LARGEST_TIME, -1)):
            found = await listed(client, time)
            assert (found.error_code, found.offset) == (ErrorCode.none, offset)

    play(test)


@pytest.mark.parametrize("time", [-4, -5, -(2**63)])
def test_other_special_times_are_not_supported(time: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        found = await listed(broker.client(), time)
        assert found.error_code is ErrorCode.unsupported_version
        assert found.offset == -1

    play(test)


@pytest.mark.parametrize("isolation", [0, 1])
def test_the_latest_offset_is_the_next_one_that_is_committed(isolation: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 3)
        log = broker.log("t")
        log.hold()
        log.append(check_batch(encode_batch([NewRecord(None, None)]), DEFAULT_LIMITS, NOW_MS))
        client = broker.client()
        assert (await listed(client, LATEST, isolation=isolation)).offset == 3
        log.let_go()
        assert (await listed(client, LATEST, isolation=isolation)).offset == 4

    play(test)


@pytest.mark.parametrize("version", range(4, 8))
def test_another_leader_epoch_is_told(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        epoch, client = broker.log("t").epoch, broker.client()
        for given, code in (
            (epoch - 1, ErrorCode.fenced_leader_epoch),
            (epoch + 1, ErrorCode.unknown_leader_epoch),
            (epoch, ErrorCode.none),
        ):
            found = await listed(client, LATEST, version, epoch=given)
            assert found.error_code is code

    play(test)


def test_what_is_not_there_is_told() -> None:
    async def test(broker: PluggedBroker) -> None:
        found = await listed(broker.client(), LATEST, topic="missing")
        assert (found.error_code, found.offset) == (ErrorCode.unknown_topic_or_partition, -1)

    play(test)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_an_epoch_is_told_in_every_version(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 3)
        epoch, client = broker.log("t").epoch, broker.client()

        async def end_of(asked_epoch: int, current: int = -1) -> Any:
            of_topic = element(load_request_schema(LEADER_EPOCH, version), "topics")
            of_partition = element(of_topic, "partitions")
            partition = of_partition(
                partition=0, current_leader_epoch=current, leader_epoch=asked_epoch
            )
            topics = (of_topic(topic="t", partitions=(partition,)),)
            (found,) = await asked(client, LEADER_EPOCH, version, topics, replica_id=-1)
            return found

        found = await end_of(epoch)
        assert (found.error_code, found.leader_epoch) == (ErrorCode.none, epoch)
        assert found.end_offset == 3
        unknown = await end_of(epoch + 1)
        assert (unknown.leader_epoch, unknown.end_offset) == (-1, -1)
        assert (await end_of(epoch, epoch - 1)).error_code is ErrorCode.fenced_leader_epoch
        assert (await end_of(epoch, epoch + 1)).error_code is ErrorCode.unknown_leader_epoch

    play(test)


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset_in_every_version(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1, 1, 1)
        client = broker.client()
        schema: Any = load_request_schema(DELETE_RECORDS, version)
        of_topic = element(schema, "topics")
        of_partition = element(of_topic, "partitions")
        for offset, code, start in [
            (1, ErrorCode.none, 1),
            (0, ErrorCode.none, 1),  # what is gone is gone
            (4, ErrorCode.offset_out_of_range, -1),
            (-2, ErrorCode.offset_out_of_range, -1),
            (-1, ErrorCode.none, 3),
        ]:
            partition = of_partition(partition_index=0, offset=offset)
            topics = (of_topic(name="t", partitions=(partition,)),)
            (found,) = await asked(
                client, DELETE_RECORDS, version, topics, timeout=timedelta(seconds=1)
            )
            assert (found.error_code, found.low_watermark) == (code, start)
        assert (await listed(client, EARLIEST)).offset == 3

    play(test)
