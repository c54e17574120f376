"""Power is lost at every step of what happens to topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from broker.topics.lives import Life, Step, survive
from stratalog.broker.topics import Topics
from stratalog.broker.topics.disk_home import DiskHome, DiskNotes
from stratalog.broker.topics.topic import note_key, partition_name
from stratalog.errors import Corrupt
from stratalog.testing.simulation import SimulatedRuntime


async def some_topics(life: Life) -> None:
    await life.create("one", 2, "one")
    await life.append("one")
    await life.create("two", 1, "two")
    await life.append("two")


async def create(life: Life) -> None:
    await life.create("new", 3, "new")
    await life.append("new")


async def delete(life: Life) -> None:
    await life.delete("one")


async def make_again(life: Life) -> None:
    await life.delete("one")
    await life.create("one", 2, "one again")
    await life.append("one")


async def grow(life: Life) -> None:
    await life.grow("one", 4)
    await life.append("one")


async def configure(life: Life) -> None:
    await life.configure("one", retention_ms="5")
    await life.configure("one", retention_bytes="7")
    await life.append("two")


@pytest.mark.parametrize("step", [create, delete, grow, configure])
def test_a_topic_is_as_before_or_as_after_whenever_the_power_is_lost(step: Step) -> None:
    assert survive(step, some_topics) > 10


@pytest.mark.slow
def test_a_topic_made_again_never_shows_old_records() -> None:
    assert survive(make_again, some_topics) > 30


# Planted bugs


def test_the_first_topic_of_a_directory_is_made_or_not() -> None:
    assert survive(create) > 10


def test_a_name_that_is_reused_with_its_old_data_is_found(monkeypatch: Any) -> None:
    """As if partitions were called by the topic's name, and removing them later were enough."""

    async def not_removed(self: Topics, names: list[str]) -> None:
        pass

    monkeypatch.setattr(SimulatedRuntime, "new_id", lambda self, length=12: "ab" * (length // 2))
    monkeypatch.setattr(Topics, "_remove_partitions", not_removed)

    async def prologue(life: Life) -> None:
        await life.create("one", 2, "one")
        await life.append("one")

    with pytest.raises(AssertionError, match="not its own"):
        survive(make_again, prologue)


def test_a_partition_left_after_a_deletion_is_found(monkeypatch: Any) -> None:
    async def not_removed(self: Topics, names: list[str]) -> None:
        pass

    monkeypatch.setattr(Topics, "_remove_leftovers", not_removed)
    with pytest.raises(AssertionError, match="without a topic"):
        survive(delete, some_topics)
    with pytest.raises(AssertionError, match="without a topic"):
        survive(create, some_topics)


def test_a_deletion_that_removes_the_partitions_first_is_found(monkeypatch: Any) -> None:
    right = Topics._delete

    async def partitions_first(self: Topics, name: str, topic_id: Any) -> Any:
        topic = self.get(name)
        assert topic is not None
        for number in range(len(topic.partitions)):
            await self._home.remove(partition_name(topic.id, number))
        return await right(self, name, topic_id)

    monkeypatch.setattr(Topics, "_delete", partitions_first)
    with pytest.raises(Corrupt, match="missing"):
        survive(delete, some_topics)


def test_a_creation_that_writes_the_note_first_is_found(monkeypatch: Any) -> None:
    right = Topics._made

    async def note_first(self: Topics, topic_id: str, first: int, note: Any) -> Any:
        await self._notes.change({note_key(topic_id): note.encode()})
        return await right(self, topic_id, first, note)

    monkeypatch.setattr(Topics, "_made", note_first)
    with pytest.raises(Corrupt, match="missing"):
        survive(create, some_topics)


@pytest.mark.parametrize("step", [create, delete, configure])
def test_a_change_that_is_acknowledged_before_it_is_durable_is_found(
    step: Step, monkeypatch: Any
) -> None:
    async def at_once(self: DiskNotes, changes: Mapping[str, bytes | None]) -> None:
        self._disk.notes.submit(changes)

    monkeypatch.setattr(DiskNotes, "change", at_once)
    with pytest.raises((AssertionError, Corrupt)):
        survive(step, some_topics)


def test_a_home_that_keeps_what_is_removed_is_found(monkeypatch: Any) -> None:
    async def kept(self: DiskHome, name: str) -> None:
        pass

    monkeypatch.setattr(DiskHome, "remove", kept)
    with pytest.raises(AssertionError, match="without a topic"):
        survive(delete, some_topics)
