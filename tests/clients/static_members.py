"""Two static members, one of which goes away without leaving and comes back: a program of its own.

``python -m clients.static_members ADDRESS GROUP TOPIC``. The partitions must be the same, and the
other member must not be asked to join again.
"""

from __future__ import annotations

import os
import sys
import time

from confluent_kafka import Consumer, TopicPartition

PATIENCE_S = 30.0


class StaticMember:
    def __init__(self, address: str, group: str, topic: str, instance: str) -> None:
        self.assignments = 0
        self.consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "group.instance.id": instance,
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 500,
                "auto.offset.reset": "earliest",
            }
        )
        self.consumer.subscribe([topic], on_assign=self._assigned)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1

    def partitions(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}


def until_shared(*members: StaticMember) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not all(0 < len(each.partitions()) < 6 for each in members):
        assert time.monotonic() < deadline, [each.partitions() for each in members]
        for each in members:
            each.consumer.poll(0.05)


def main(address: str, group: str, topic: str) -> None:
    stays = StaticMember(address, group, topic, "stays")
    goes = StaticMember(address, group, topic, "goes")
    until_shared(stays, goes)
    held, assigned = goes.partitions(), stays.assignments
    goes.consumer.close()  # a static member does not leave when it closes
    back = StaticMember(address, group, topic, "goes")
    until_shared(stays, back)
    assert back.partitions() == held, (back.partitions(), held)
    assert stays.assignments == assigned, "the other member was disturbed"


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # clients of librdkafka need not close in good order here
