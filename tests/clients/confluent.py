"""confluent-kafka (librdkafka), as the tests use it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from clients.published_client import TIMEOUT_S, Received, Sent

NOW = 0


class Confluent:
    name = "confluent-kafka"

    def __init__(self, address: str) -> None:
        self._address = address
        self._admin = AdminClient({"bootstrap.servers": address})

    def produce(
        self, topic: str, records: Sequence[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        producer = Producer(
            {
                "bootstrap.servers": self._address,
                "compression.codec": codec,
                "enable.idempotence": idempotent,
                "linger.ms": 20,
            }
        )
        offsets = [-1] * len(records)
        for place, record in enumerate(records):

            def delivered(error: KafkaError | None, message: Message, place: int = place) -> None:
                assert error is None, error
                offset = message.offset()
                assert offset is not None
                offsets[place] = offset

            producer.produce(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                headers=list(record.headers),
                on_delivery=delivered,
                timestamp=record.time_ms or NOW,
            )
        assert producer.flush(TIMEOUT_S) == 0
        return offsets

    def _consumer(self, group: str = "unused") -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
            }
        )

    def read(self, topic: str, start: int, count: int, partition: int = 0) -> list[Received]:
        consumer = self._consumer()
        try:
            consumer.assign([TopicPartition(topic, partition, start)])
            found: list[Received] = []
            while len(found) < count:
                batch = consumer.consume(count - len(found), TIMEOUT_S)
                assert batch, f"{len(found)} of {count} records"
                found += [_received(message) for message in batch]
            return found
        finally:
            consumer.close()

    def offset_at(self, topic: str, time_ms: int, partition: int = 0) -> int | None:
        consumer = self._consumer()
        try:
            asked = [TopicPartition(topic, partition, time_ms)]
            (found,) = consumer.offsets_for_times(asked, TIMEOUT_S)
            return found.offset if found.offset >= 0 else None
        finally:
            consumer.close()

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = self._consumer()
        try:
            first, end = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), TIMEOUT_S, cached=False
            )
            return first, end
        finally:
            consumer.close()

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        consumer = self._consumer(group)
        try:
            consumer.commit(
                offsets=[TopicPartition(topic, number, at) for number, at in offsets.items()],
                asynchronous=False,
            )
        finally:
            consumer.close()

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        consumer = self._consumer(group)
        try:
            (found,) = consumer.committed([TopicPartition(topic, partition)], TIMEOUT_S)
            return found.offset if found.offset >= 0 else None
        finally:
            consumer.close()

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[None]:
        """Read in a group, which has got a first record, until the end of the block."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": group,
                "client.id": "reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        try:
            assert consumer.poll(TIMEOUT_S) is not None
            yield
        finally:
            consumer.close()

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        topic = NewTopic(name, partitions, 1, config=dict(config or {}))
        self._admin.create_topics([topic])[name].result(TIMEOUT_S)

    def create_topics(self, names: Sequence[str]) -> None:
        """Many in one request, of one partition each."""
        for done in self._admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            done.result(TIMEOUT_S)

    def delete_topic(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(TIMEOUT_S)

    def topics(self) -> dict[str, int]:
        found = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def add_partitions(self, name: str, total: int) -> None:
        self._admin.create_partitions([NewPartitions(name, total)])[name].result(TIMEOUT_S)

    def config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found = self._admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        return {name: entry.value for name, entry in found.items()}

    def set_config(self, topic: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        asked = TopicPartition(topic, partition, before)
        for done in self._admin.delete_records([asked]).values():
            done.result(TIMEOUT_S)

    def brokers(self) -> dict[int, str]:
        """Where clients are told to connect."""
        found = self._admin.describe_cluster().result(TIMEOUT_S).nodes
        return {each.id: f"{each.host}:{each.port}" for each in found}

    def groups(self) -> set[str]:
        found = self._admin.list_consumer_groups().result(TIMEOUT_S)
        assert not found.errors
        return {each.group_id for each in found.valid}

    def all_committed(self, group: str) -> dict[tuple[str, int], int]:
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        found = asked[group].result(TIMEOUT_S).topic_partitions
        return {(each.topic, each.partition): each.offset for each in found}

    def group_state(self, group: str) -> str:
        found = self._admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        return str(found.state.name).capitalize()

    def delete_group(self, group: str) -> None:
        self._admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)


def _received(message: Message) -> Received:
    assert message.error() is None, message.error()
    offset = message.offset()
    assert offset is not None
    found = message.headers() or []
    assert isinstance(found, list)
    headers = tuple((name, _bytes(value)) for name, value in found)
    _, time_ms = message.timestamp()
    value, key = message.value(), message.key()
    assert not isinstance(value, str)
    assert not isinstance(key, str)
    return Received(offset, value, key, headers, time_ms)


def _bytes(value: str | bytes | None) -> bytes:
    assert isinstance(value, bytes)
    return value
