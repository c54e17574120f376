"""What published clients may ask for besides records: topics, settings, offsets, groups."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata

from clients.confluent import Confluent
from clients.published_client import TIMEOUT_S, PublishedClient, Sent
from clients.pure_python import PurePython

NOON_MS = 1_700_000_000_000


def test_a_topic_is_created_seen_and_deleted(client: PublishedClient) -> None:
    name = f"made-{uuid.uuid4().hex[:8]}"
    client.create_topic(name, 5, {"retention.ms": "86400000"})
    assert client.topics()[name] == 5
    assert client.config(name)["retention.ms"] == "86400000"
    client.delete_topic(name)
    assert name not in client.topics()


def test_a_topic_of_an_old_name_shows_no_old_records(client: PublishedClient) -> None:
    name = f"again-{uuid.uuid4().hex[:8]}"
    client.create_topic(name)
    client.produce(name, [Sent(b"old")] * 3)
    client.delete_topic(name)
    client.create_topic(name)
    assert client.ends(name) == (0, 0)
    client.produce(name, [Sent(b"new")])
    assert [each.value for each in client.read(name, 0, 1)] == [b"new"]
    client.delete_topic(name)


def test_a_topic_that_is_there_is_not_created_again(client: PublishedClient, topic: str) -> None:
    with pytest.raises(Exception, match=r"(?i)exist|36"):
        client.create_topic(topic)


def test_a_name_with_a_slash_is_refused(client: PublishedClient) -> None:
    with pytest.raises(Exception, match=r"(?i)topic|17"):
        client.create_topic("a/../b")


def test_more_partitions_are_added_and_fewer_refused(client: PublishedClient, topic: str) -> None:
    client.add_partitions(topic, 4)
    assert client.topics()[topic] == 4
    with pytest.raises(Exception, match=r"(?i)partition|37"):
        client.add_partitions(topic, 2)


def test_a_setting_is_changed(client: PublishedClient, topic: str) -> None:
    client.set_config(topic, "retention.bytes", "123456789")
    assert client.config(topic)["retention.bytes"] == "123456789"


def test_deleted_records_are_gone_and_the_rest_stays(client: PublishedClient, topic: str) -> None:
    client.produce(topic, [Sent(b"%d" % number) for number in range(100)])
    client.delete_records(topic, 40)
    assert client.ends(topic) == (40, 100)
    assert client.read(topic, 40, 60)[0].value == b"40"


def test_committed_offsets_stay(client: PublishedClient, topic: str, group: str) -> None:
    client.add_partitions(topic, 2)
    client.produce(topic, [Sent(b"x")] * 10)
    assert client.committed(group, topic) is None
    client.commit(group, topic, {0: 7, 1: 0})
    assert client.committed(group, topic) == 7
    assert client.committed(group, topic, 1) == 0
    client.commit(group, topic, {0: 3})
    assert client.committed(group, topic) == 3
    assert client.all_committed(group) == {(topic, 0): 3, (topic, 1): 0}
    assert group in client.groups()
    assert client.group_state(group) == "Empty"


def test_the_broker_is_described_as_clients_reach_it(client: PublishedClient, address: str) -> None:
    assert client.brokers() == {0: address}


def test_librdkafka_changes_what_groups_have_committed(address: str) -> None:
    client, admin = Confluent(address), AdminClient({"bootstrap.servers": address})
    topic, group = _used_topic(client)
    places = [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 0)]
    asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
    assert not any(each.error for each in asked[group].result(TIMEOUT_S).topic_partitions)
    assert client.all_committed(group) == {(topic, 0): 3, (topic, 1): 0}
    client.delete_group(group)
    assert group not in client.groups()


def test_librdkafka_asks_for_offsets_and_topics_as_administrator(address: str) -> None:
    client, admin = Confluent(address), AdminClient({"bootstrap.servers": address})
    topic, _ = _used_topic(client)
    place = TopicPartition(topic, 0)
    for asked, expected in (
        (OffsetSpec.earliest(), 0),  # type: ignore[no-untyped-call]
        (OffsetSpec.latest(), 10),  # type: ignore[no-untyped-call]
        (OffsetSpec.max_timestamp(), 9),  # type: ignore[no-untyped-call]
        (OffsetSpec.for_timestamp(NOON_MS + 4), 4),
    ):
        assert admin.list_offsets({place: asked})[place].result(TIMEOUT_S).offset == expected
    found = admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
    assert [(each.id, each.leader.id) for each in found.partitions] == [(0, 0), (1, 0)]


def test_kafka_python_changes_and_forgets_what_groups_have_committed(address: str) -> None:
    client = PurePython(address)
    topic, group = _used_topic(client)
    with client.admin() as admin:
        admin.alter_group_offsets(
            group,
            {
                PythonPartition(topic, 0): OffsetAndMetadata(5, "", -1),
                PythonPartition(topic, 1): OffsetAndMetadata(0, "", -1),
            },
        )
        assert client.all_committed(group) == {(topic, 0): 5, (topic, 1): 0}
        admin.delete_group_offsets(group, [PythonPartition(topic, 1)])
    assert client.all_committed(group) == {(topic, 0): 5}
    client.delete_group(group)
    assert group not in client.groups()


def test_kafka_python_sees_producers_and_sizes(address: str) -> None:
    client = PurePython(address)
    topic, _ = _used_topic(client)
    place = PythonPartition(topic, 0)
    with client.admin() as admin:
        (producer,) = admin.describe_producers([place])[place].active_producers
        (folder,) = admin.describe_log_dirs()[0]["log_dirs"]
    assert (producer.producer_epoch, producer.last_sequence) == (0, 9)
    (found,) = [each for each in folder["topics"] if each["name"] == topic]
    assert [each["partition_size"] > 0 for each in found["partitions"]] == [True, False]


def _used_topic(client: PublishedClient) -> tuple[str, str]:
    """A topic of two partitions with ten records in the first, and a group that has read seven."""
    topic, group = f"used-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
    client.create_topic(topic, 2)
    records = [Sent(b"%d" % number, time_ms=NOON_MS + number) for number in range(10)]
    client.produce(topic, records, idempotent=True)
    client.commit(group, topic, {0: 7})
    return topic, group
