"""Records written by a published client come back to it as they were, by assignment."""

from __future__ import annotations

import random

import pytest

from clients.every_client import CLIENTS
from clients.published_client import CODECS, PublishedClient, Received, Sent

COUNT = 500
HOUR_MS = 3_600_000
NOON_MS = 1_700_000_000_000


def _varied(count: int) -> list[Sent]:
    chance = random.Random(7)
    return [
        Sent(
            value=None if number % 7 == 3 else chance.randbytes(number % 300) + b"x" * 100,
            key=None if number % 5 == 2 and number % 7 != 3 else b"key-%d" % number,
            headers=(("number", b"%d" % number), ("twice", b""), ("twice", b"\x00\xff"))
            if number % 3
            else (),
            time_ms=NOON_MS + number,
        )
        for number in range(count)
    ]


def _expected(sent: list[Sent]) -> list[Received]:
    return [
        Received(offset, each.value, each.key, each.headers, each.time_ms or 0)
        for offset, each in enumerate(sent)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_come_back_as_they_were(
    client: PublishedClient, topic: str, codec: str
) -> None:
    sent = _varied(COUNT)
    assert client.produce(topic, sent, codec=codec) == list(range(COUNT))
    assert client.read(topic, 0, COUNT) == _expected(sent)


def test_each_client_reads_what_the_others_wrote(
    client: PublishedClient, topic: str, address: str
) -> None:
    sent = _varied(COUNT)
    for place, codec in enumerate(CODECS):
        client.produce(topic, sent[place * 100 : (place + 1) * 100], codec=codec)
    for reader in CLIENTS.values():
        assert reader(address).read(topic, 0, COUNT) == _expected(sent)


def test_an_idempotent_producer_writes_each_record_once_in_order(
    client: PublishedClient, topic: str
) -> None:
    sent = [Sent(b"%d" % number) for number in range(COUNT)]
    assert client.produce(topic, sent, idempotent=True) == list(range(COUNT))
    assert [each.value for each in client.read(topic, 0, COUNT)] == [each.value for each in sent]


def test_a_read_begins_in_the_middle_of_a_batch(client: PublishedClient, topic: str) -> None:
    client.produce(topic, _varied(COUNT))
    found = client.read(topic, 123, 200)
    assert [each.offset for each in found] == list(range(123, 323))


def test_partitions_are_apart(client: PublishedClient, topic: str) -> None:
    client.add_partitions(topic, 3)
    sent = [Sent(b"%d" % number, partition=number % 3) for number in range(90)]
    client.produce(topic, sent)
    for partition in range(3):
        found = client.read(topic, 0, 30, partition)
        assert [each.value for each in found] == [b"%d" % n for n in range(partition, 90, 3)]


def test_a_time_finds_the_first_record_at_or_after_it(client: PublishedClient, topic: str) -> None:
    for number in range(10):
        client.produce(topic, [Sent(b"x", time_ms=NOON_MS + number * HOUR_MS)])
    assert client.offset_at(topic, NOON_MS + 3 * HOUR_MS) == 3
    assert client.offset_at(topic, NOON_MS + 3 * HOUR_MS + 1) == 4
    assert client.offset_at(topic, NOON_MS - HOUR_MS) == 0
    assert client.offset_at(topic, NOON_MS + 10 * HOUR_MS) in (None, 10)


def test_a_time_finds_a_record_within_a_batch(client: PublishedClient, topic: str) -> None:
    client.produce(topic, _varied(COUNT))
    assert client.offset_at(topic, NOON_MS + 250) == 250


def test_a_record_of_most_of_a_megabyte_comes_back(client: PublishedClient, topic: str) -> None:
    value = random.Random(1).randbytes(900_000)
    client.produce(topic, [Sent(value), Sent(b"small"), Sent(value)])
    assert [each.value for each in client.read(topic, 0, 3)] == [value, b"small", value]
