"""What published clients may ask for besides records: topics, settings, offsets, groups."""

from __future__ import annotations

import uuid

import pytest

from clients.published_client import PublishedClient, Sent


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
    assert group in client.groups()
    assert client.group_state(group) == "Empty"
