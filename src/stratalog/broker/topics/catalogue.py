"""All topics of a broker, by name and by id: made, changed and removed here, one change of a name
at a time.

Every change ends with the topic's note, which is its commit point:

    create    make the partitions, write the note
    grow      make the further partitions, write the note
    configure write the note
    delete    remove the note, remove the partitions

So a crash leaves a topic as it was before or as it is after, and at most partitions that no note
covers. Those are removed when the broker opens. A topic that is made again has a new id and so new
partitions: what another topic of its name left cannot appear in it.

If the outcome of writing a note is unknown, the topic is out of service and its name stays taken
until a later removal of the note has gone through.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from itertools import islice
from typing import Any, Self
from uuid import UUID

import msgspec

from stratalog.broker.options import BrokerOptions
from stratalog.broker.topics.disk_home import DiskHome, DiskNotes
from stratalog.broker.topics.home import Notes, PartitionHome
from stratalog.broker.topics.names import check_topic_name, is_topic_name, without_dots
from stratalog.broker.topics.refusals import (
    collides,
    no_more_partitions,
    not_above,
    shutting_down,
    too_many_partitions,
    topic_exists,
    unknown_topic,
)
from stratalog.broker.topics.retention import Retention
from stratalog.broker.topics.settings import UNLIMITED
from stratalog.broker.topics.together import for_each
from stratalog.broker.topics.topic import (
    PREFIX,
    Topic,
    TopicNote,
    decode_note,
    is_partition_name,
    note_key,
    partition_name,
)
from stratalog.broker.topics.turns import Turns
from stratalog.errors import Corrupt, NotFound, StratalogError, Unknown
from stratalog.invariants import invariant
from stratalog.partitions import CheckpointTurns, PartitionLog, ProducerLimits
from stratalog.runtime import Runtime
from stratalog.segments import Disk

PARTITIONS_MAX = 100_000
"""Of all topics together."""

CHANGES_AT_ONCE_MAX = 32
OPENED_AT_ONCE_MAX = 32

log = logging.getLogger(__name__)


class Topics:
    """The topics of an open broker."""

    def __init__(
        self, home: PartitionHome, notes: Notes, options: BrokerOptions, runtime: Runtime
    ) -> None:
        self._home = home
        self._notes = notes
        self._runtime = runtime
        self.defaults = defaults_of(options)
        """The broker's defaults of settings, where they differ from Kafka's."""
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[str, Topic] = {}
        self._by_key: dict[str, str] = {}
        """Names without dots, which no two topics may share."""
        self._unsettled: dict[str, str] = {}
        """Names whose note, of this id, may be there or not."""
        self._partitions = 0
        self._turns = Turns(CHANGES_AT_ONCE_MAX)
        self._changes: set[asyncio.Task[Any]] = set()
        self._on_deleted: list[Callable[[Topic], None]] = []
        self._is_closed = False
        self._retention = Retention(self.all, options.retention_check_ms, runtime)

    @classmethod
    async def open(
        cls,
        disk: Disk,
        options: BrokerOptions,
        runtime: Runtime,
        turns: CheckpointTurns | None = None,
    ) -> Self:
        """The topics on a disk. ``Corrupt`` if a partition is missing.

        ``turns`` are those of all logs of the disk. The disk is closed after the topics.
        """
        limits = ProducerLimits(options.producers_max, options.producer_expiry_ms * 1000)
        home = DiskHome(disk, runtime, turns or CheckpointTurns(), limits)
        topics = cls(home, DiskNotes(disk), options, runtime)
        try:
            await topics.load()
        except BaseException:
            await topics.close()
            raise
        topics._retention.start()
        return topics

    async def load(self) -> None:
        """Open what is stored, and remove leftovers. ``Corrupt`` if a partition is missing."""
        stored = self._stored()
        wanted = [
            partition_name(topic_id, number)
            for topic_id, note in stored.items()
            for number in range(note.partitions)
        ]
        there = {name for name in self._home.names() if is_partition_name(name)}
        missing = sorted(set(wanted) - there)
        if missing:
            raise Corrupt(
                f"{len(missing)} partitions of topics are missing: {', '.join(missing[:5])}",
                hint="`stratalog disk check` says what the data directory holds.",
            )
        await self._remove_leftovers(sorted(there - set(wanted)))
        logs = iter(await for_each(self._home.open, wanted, OPENED_AT_ONCE_MAX))
        for topic_id, note in stored.items():
            partitions = list(islice(logs, note.partitions))
            self._add(Topic(topic_id, note, partitions, self.defaults))

    def _stored(self) -> dict[str, TopicNote]:
        """The notes of topics, by id."""
        stored: dict[str, TopicNote] = {}
        names: set[str] = set()
        for key, value in self._notes.items(PREFIX):
            note = decode_note(key, value)
            if note.name in names:
                raise Corrupt(f"two topics are called {note.name}", path=key)
            names.add(note.name)
            stored[key.removeprefix(PREFIX)] = note
        return stored

    async def _remove_leftovers(self, names: list[str]) -> None:
        """Remove partitions that no note covers: of a creation or deletion that was cut short."""
        for name in names:
            log.info("removing partition %s, which belongs to no topic", name)
            await self._home.remove(name)

    # Looking

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def partitions_count(self) -> int:
        """The partitions of all topics."""
        return self._partitions

    def all(self) -> list[Topic]:
        """All topics, by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def get(self, name: str) -> Topic | None:
        """The topic of this name, if there is one."""
        return self._by_name.get(name)

    def by_id(self, topic_id: UUID) -> Topic | None:
        """The topic with this id, if there is one."""
        return self._by_id.get(topic_id.hex)

    def partition(self, name: str, number: int) -> PartitionLog | None:
        """A partition by its topic's name, if there is one."""
        topic = self._by_name.get(name)
        return None if topic is None else topic.partition(number)

    def check_new(self, name: str, partitions: int) -> None:
        """Whether a topic could be made. Raises what ``create`` would raise."""
        check_topic_name(name)
        if name in self._by_name:
            raise topic_exists(name)
        other = self._by_key.get(without_dots(name))
        if other is not None:
            raise collides(name, other)
        self._check_total(partitions)

    def check_growth(self, name: str, partitions: int) -> Topic:
        """The topic, if it can have this many partitions. Raises what ``grow`` would raise."""
        topic = self._found(name)
        now = len(topic.partitions)
        if partitions == now:
            raise no_more_partitions(name, now)
        if partitions < now:
            raise not_above(name, now, partitions)
        self._check_total(partitions - now)
        return topic

    # Changing

    def on_deleted(self, callback: Callable[[Topic], None]) -> Callable[[], None]:
        """Call it with each topic that was deleted. Returns what ends it."""
        self._on_deleted.append(callback)
        return lambda: self._on_deleted.remove(callback)

    async def create(
        self, name: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> Topic:
        """Make a topic. Durable when this returns. ``settings`` are in their normal form."""
        check_topic_name(name)
        return await self._change(name, lambda: self._create(name, partitions, settings or {}))

    async def ensure(self, name: str, partitions: int) -> Topic:
        """The topic of this name, made if there is none."""

        async def found_or_made() -> Topic:
            found = self._by_name.get(name)
            return found or await self._create(name, partitions, {})

        check_topic_name(name)
        return self._by_name.get(name) or await self._change(name, found_or_made)

    async def delete(self, name: str, topic_id: UUID | None = None) -> Topic:
        """Remove a topic with its records. With an id: only if the topic still has it."""
        return await self._change(name, lambda: self._delete(name, topic_id))

    async def grow(self, name: str, partitions: int) -> Topic:
        """Add partitions until there are this many."""
        return await self._change(name, lambda: self._grow(name, partitions))

    async def configure(
        self, name: str, decide: Callable[[Mapping[str, str]], dict[str, str]]
    ) -> Topic:
        """Change the settings given to a topic. ``decide`` gives the new ones, or raises."""
        return await self._change(name, lambda: self._configure(name, decide))

    async def close(self) -> None:
        """Let changes that have begun end, then close all partitions. Later changes are refused."""
        self._is_closed = True
        await self._retention.close()
        while self._changes:
            await asyncio.wait(self._changes)
        await self._home.close()

    async def _change(self, name: str, change: Callable[[], Coroutine[Any, Any, Topic]]) -> Topic:
        """One change of a name at a time. A cancelled caller does not stop it."""

        async def in_turn() -> Topic:
            async with self._turns.of(without_dots(name)):
                if self._is_closed:
                    raise shutting_down()
                await self._settle(name)
                return await change()

        if self._is_closed:
            raise shutting_down()
        task = asyncio.ensure_future(in_turn())
        self._changes.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._changes.discard(task)
        if not task.cancelled():
            task.exception()  # whoever gave up waiting does not want it

    async def _create(self, name: str, partitions: int, settings: Mapping[str, str]) -> Topic:
        invariant(partitions >= 1, "a topic has a partition")
        self.check_new(name, partitions)
        topic_id = UUID(hex=self._runtime.new_id(32), version=4).hex
        invariant(topic_id not in self._by_id, "the id of a topic is new")
        note = TopicNote(
            name=name,
            partitions=partitions,
            settings=dict(settings),
            created_us=self._runtime.now_us(),
        )
        self._partitions += partitions  # promised, so that others do not take the room
        try:
            logs = await self._made(topic_id, 0, note)
        finally:
            self._partitions -= partitions
        topic = Topic(topic_id, note, logs, self.defaults)
        self._add(topic)
        log.info("created topic %s, id %s, partitions: %d", name, topic_id, partitions)
        return topic

    async def _made(self, topic_id: str, first: int, note: TopicNote) -> list[PartitionLog]:
        """Make partitions from ``first`` on, and commit them with the note."""
        names = [partition_name(topic_id, number) for number in range(first, note.partitions)]
        try:
            logs = [await self._home.create(name) for name in names]
            await self._notes.change({note_key(topic_id): note.encode()})
        except Unknown:
            # The note may be there, so its partitions stay. `_settle` or the next opening decides.
            if first == 0:
                self._unsettled[note.name] = topic_id
            raise
        except StratalogError:
            await self._remove_partitions(names)
            raise
        return logs

    async def _delete(self, name: str, topic_id: UUID | None) -> Topic:
        topic = self._found(name)
        if topic_id is not None and topic.uuid != topic_id:
            raise unknown_topic(name)
        try:
            await self._notes.change({note_key(topic.id): None})
        except Unknown:
            # Nothing may be acknowledged in it any more: the next opening may not find it.
            self._remove(topic)
            self._unsettled[name] = topic.id
            for partition in topic.partitions:
                with contextlib.suppress(StratalogError):
                    await partition.close()
            raise
        self._remove(topic)
        log.info("deleted topic %s, id %s", name, topic.id)
        await self._finish_deletion(topic)
        return topic

    async def _finish_deletion(self, topic: Topic) -> None:
        for callback in tuple(self._on_deleted):
            callback(topic)
        numbers = range(len(topic.partitions))
        await self._remove_partitions([partition_name(topic.id, number) for number in numbers])

    async def _grow(self, name: str, partitions: int) -> Topic:
        topic = self.check_growth(name, partitions)
        now = len(topic.partitions)
        note = msgspec.structs.replace(topic.note, partitions=partitions)
        self._partitions += partitions - now
        try:
            further = await self._made(topic.id, now, note)
        except BaseException:
            self._partitions -= partitions - now
            raise
        topic.became(note, [*topic.partitions, *further], self.defaults)
        log.info("topic %s has more partitions now: %d", name, partitions)
        return topic

    async def _configure(
        self, name: str, decide: Callable[[Mapping[str, str]], dict[str, str]]
    ) -> Topic:
        topic = self._found(name)
        note = msgspec.structs.replace(topic.note, settings=decide(topic.note.settings))
        if note != topic.note:
            await self._notes.change({note_key(topic.id): note.encode()})
            topic.became(note, topic.partitions, self.defaults)
        return topic

    async def _settle(self, name: str) -> None:
        """Remove a note that may be there, before anything else is done with its name."""
        topic_id = self._unsettled.get(name)
        if topic_id is None:
            return
        await self._notes.change({note_key(topic_id): None})
        del self._unsettled[name]
        names = [each for each in self._home.names() if each.startswith(f"{topic_id}-")]
        await self._remove_partitions(names)

    async def _remove_partitions(self, names: list[str]) -> None:
        """Remove what no note covers. If that fails, the next opening does it."""
        for name in names:
            try:
                await self._home.remove(name)
            except NotFound:
                pass
            except StratalogError as error:
                log.warning("partition %s is removed at the next start: %s", name, error)

    def _found(self, name: str) -> Topic:
        if not is_topic_name(name):
            check_topic_name(name)
        found = self._by_name.get(name)
        if found is None:
            raise unknown_topic(name)
        return found

    def _check_total(self, further: int) -> None:
        if self._partitions + further > PARTITIONS_MAX:
            raise too_many_partitions(self._partitions, further, PARTITIONS_MAX)

    def _add(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic
        self._by_key[without_dots(topic.name)] = topic.name
        self._partitions += len(topic.partitions)

    def _remove(self, topic: Topic) -> None:
        del self._by_name[topic.name]
        del self._by_id[topic.id]
        del self._by_key[without_dots(topic.name)]
        self._partitions -= len(topic.partitions)


def defaults_of(options: BrokerOptions) -> dict[str, str]:
    """The settings that topics have unless they say otherwise, as the broker's options put them."""

    def limit(value: int | None) -> str:
        return str(UNLIMITED if value is None else value)

    return {
        "max.message.bytes": str(options.message_bytes_max),
        "retention.bytes": limit(options.retention_bytes),
        "retention.ms": limit(options.retention_ms),
    }
