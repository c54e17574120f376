"""kafka-python, as the tests use it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.structs import OffsetAndMetadata

from clients.published_client import TIMEOUT_S, Received, Sent

TIMEOUT_MS = int(TIMEOUT_S * 1000)


class PurePython:
    name = "kafka-python"

    def __init__(self, address: str) -> None:
        self._address = address

    def produce(
        self, topic: str, records: Sequence[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=self._address,
            acks="all",
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=20,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.time_ms,
                )
                for record in records
            ]
            return [int(done.get(TIMEOUT_S).offset) for done in sent]
        finally:
            producer.close()

    @contextmanager
    def _consumer(self, group: str | None = None) -> Iterator[Any]:
        consumer = KafkaConsumer(
            bootstrap_servers=self._address,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="none",
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def read(self, topic: str, start: int, count: int, partition: int = 0) -> list[Received]:
        with self._consumer() as consumer:
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            consumer.seek(place, start)
            found: list[Received] = []
            while len(found) < count:
                batch = consumer.poll(TIMEOUT_MS, max_records=count - len(found))
                assert batch, f"{len(found)} of {count} records"
                found += [
                    Received(each.offset, each.value, each.key, tuple(each.headers), each.timestamp)
                    for each in batch[place]
                ]
            return found

    def offset_at(self, topic: str, time_ms: int, partition: int = 0) -> int | None:
        with self._consumer() as consumer:
            place = TopicPartition(topic, partition)
            found = consumer.offsets_for_times({place: time_ms})[place]
            return None if found is None else int(found.offset)

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        with self._consumer() as consumer:
            place = TopicPartition(topic, partition)
            return consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        with self._consumer(group) as consumer:
            places = {
                TopicPartition(topic, number): OffsetAndMetadata(at, "", -1)
                for number, at in offsets.items()
            }
            consumer.assign(list(places))
            consumer.commit(places)

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        with self._consumer(group) as consumer:
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            found: int | None = consumer.committed(place)
            return found

    @contextmanager
    def admin(self) -> Iterator[Any]:
        admin = KafkaAdminClient(bootstrap_servers=self._address)
        try:
            yield admin
        finally:
            admin.close()

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        wanted = {
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": dict(config or {}),
        }
        with self.admin() as admin:
            admin.create_topics({name: wanted})

    def delete_topic(self, name: str) -> None:
        with self.admin() as admin:
            admin.delete_topics([name])

    def topics(self) -> dict[str, int]:
        with self.admin() as admin:
            return {each["name"]: len(each["partitions"]) for each in admin.describe_topics()}

    def add_partitions(self, name: str, total: int) -> None:
        with self.admin() as admin:
            admin.create_partitions({name: total})

    def config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with self.admin() as admin:
            found = admin.describe_configs([resource], config_filter="all")
        return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    def set_config(self, topic: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})
        with self.admin() as admin:
            admin.alter_configs([resource])

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        with self.admin() as admin:
            admin.delete_records({TopicPartition(topic, partition): before})

    def groups(self) -> set[str]:
        with self.admin() as admin:
            return {each["group_id"] for each in admin.list_groups()}

    def all_committed(self, group: str) -> dict[tuple[str, int], int]:
        with self.admin() as admin:
            found = admin.list_group_offsets(group)[group]
        return {(each.topic, each.partition): at.offset for each, at in found.items()}

    def brokers(self) -> dict[int, str]:
        with self.admin() as admin:
            found = admin.describe_cluster()["brokers"]
        return {each["broker_id"]: f"{each['host']}:{each['port']}" for each in found}

    def group_state(self, group: str) -> str:
        with self.admin() as admin:
            return str(admin.describe_groups([group])[group]["group_state"])

    def delete_group(self, group: str) -> None:
        with self.admin() as admin:
            admin.delete_groups([group])
