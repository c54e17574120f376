"""aiokafka, as the tests use it: one event loop for each call, so that nothing lives on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from clients.published_client import TIMEOUT_S, Received, Sent

T = TypeVar("T")


class Asynchronous:
    name = "aiokafka"

    def __init__(self, address: str) -> None:
        self._address = address

    def produce(
        self, topic: str, records: Sequence[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        async def produce() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._address,
                acks="all",
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=20,
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=record.partition,
                        timestamp_ms=record.time_ms,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                return [done.offset for done in await asyncio.gather(*sent)]
            finally:
                await producer.stop()

        return _run(produce())

    @asynccontextmanager
    async def _consumer(self, group: str | None = None) -> AsyncIterator[Any]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._address,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="none",
        )
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()

    def read(self, topic: str, start: int, count: int, partition: int = 0) -> list[Received]:
        async def read() -> list[Received]:
            async with self._consumer() as consumer:
                place = TopicPartition(topic, partition)
                consumer.assign([place])
                consumer.seek(place, start)
                found: list[Received] = []
                while len(found) < count:
                    batch = await consumer.getmany(
                        place, timeout_ms=int(TIMEOUT_S * 1000), max_records=count - len(found)
                    )
                    assert batch, f"{len(found)} of {count} records"
                    found += [
                        Received(
                            each.offset, each.value, each.key, tuple(each.headers), each.timestamp
                        )
                        for each in batch[place]
                    ]
                return found

        return _run(read())

    def offset_at(self, topic: str, time_ms: int, partition: int = 0) -> int | None:
        async def ask() -> int | None:
            async with self._consumer() as consumer:
                place = TopicPartition(topic, partition)
                found = (await consumer.offsets_for_times({place: time_ms}))[place]
                return None if found is None else int(found.offset)

        return _run(ask())

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            async with self._consumer() as consumer:
                place = TopicPartition(topic, partition)
                first = await consumer.beginning_offsets([place])
                end = await consumer.end_offsets([place])
                return first[place], end[place]

        return _run(ask())

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        async def commit() -> None:
            async with self._consumer(group) as consumer:
                places = {TopicPartition(topic, number): at for number, at in offsets.items()}
                consumer.assign(list(places))
                await consumer.commit(places)

        _run(commit())

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        async def ask() -> int | None:
            async with self._consumer(group) as consumer:
                place = TopicPartition(topic, partition)
                consumer.assign([place])
                found: int | None = await consumer.committed(place)
                return found

        return _run(ask())

    def _administer(self, ask: Callable[[Any], Awaitable[T]]) -> T:
        async def administer() -> T:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._address)
            await admin.start()
            try:
                return await ask(admin)
            finally:
                await admin.close()

        return _run(administer())

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        topic = NewTopic(name, partitions, 1, topic_configs=dict(config or {}))
        _accepted(self._administer(lambda admin: admin.create_topics([topic])).topic_errors)

    def delete_topic(self, name: str) -> None:
        answer = self._administer(lambda admin: admin.delete_topics([name]))
        _accepted(answer.topic_error_codes)

    def topics(self) -> dict[str, int]:
        found = self._administer(lambda admin: admin.describe_topics())
        return {each["topic"]: len(each["partitions"]) for each in found}

    def add_partitions(self, name: str, total: int) -> None:
        more = {name: NewPartitions(total)}
        _accepted(self._administer(lambda admin: admin.create_partitions(more)).topic_errors)

    def config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self._administer(lambda admin: admin.describe_configs([resource]))
        ((code, why, _, name, entries),) = answer.resources
        assert (code, name) == (0, topic), why
        return {entry[0]: entry[1] for entry in entries}

    def set_config(self, topic: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})
        (answer,) = self._administer(lambda admin: admin.alter_configs([resource]))
        for code, why, *_ in answer.resources:
            assert code == 0, why

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        asked = {TopicPartition(topic, partition): RecordsToDelete(before)}
        self._administer(lambda admin: admin.delete_records(asked))

    def groups(self) -> set[str]:
        found = self._administer(lambda admin: admin.list_consumer_groups())
        return {each[0] for each in found}

    def all_committed(self, group: str) -> dict[tuple[str, int], int]:
        found = self._administer(lambda admin: admin.list_consumer_group_offsets(group))
        return {(each.topic, each.partition): at.offset for each, at in found.items()}

    def brokers(self) -> dict[int, str]:
        found = self._administer(lambda admin: admin.describe_cluster())
        return {each["node_id"]: f"{each['host']}:{each['port']}" for each in found["brokers"]}

    def group_state(self, group: str) -> str:
        (answer,) = self._administer(lambda admin: admin.describe_consumer_groups([group]))
        ((code, _, state, *_),) = answer.groups
        assert code == 0
        return str(state)


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 2 * TIMEOUT_S))


def _accepted(errors: Sequence[tuple[Any, ...]]) -> None:
    for name, code, *why in errors:
        assert code == 0, (name, code, why)
