"""Where a group shall go on: what a reset of its offsets means for each partition.

    to-earliest        the first record that is there
    to-latest          the end: only what comes from now on
    to-offset N        this offset
    to-datetime T      the first record at or after this time, or the end if there is none
    by-duration D      the same for a time so long ago
    shift-by N         so many records on from the committed offset, or back

An offset outside of the partition becomes the nearest one inside, as Kafka's own tool does it.
The plan is made first and shown; ``execute`` commits it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from stratalog.broker.admin.connection import Connection
from stratalog.broker.admin.groups import (
    Place,
    commit_offsets,
    committed_offsets,
    require_no_members,
)
from stratalog.broker.admin.offsets import EARLIEST, LATEST, offsets_at
from stratalog.broker.admin.topics import partitions_of
from stratalog.errors import Invalid, NotFound


class Where(StrEnum):
    """The kinds of a new position."""

    EARLIEST = "to-earliest"
    LATEST = "to-latest"
    OFFSET = "to-offset"
    TIME = "to-datetime"
    SHIFT = "shift-by"


@dataclass(frozen=True, slots=True)
class Target:
    """A new position: its kind, and the offset, the milliseconds or the shift."""

    where: Where
    value: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of a partition: its first offset, its end, and the offset of the time."""

    start: int
    end: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """What a reset changes in one partition."""

    topic: str
    partition: int
    before: int | None
    after: int
    clamped: bool
    """Whether the offset asked for lies outside of the partition."""


def new_offset(target: Target, bounds: Bounds, committed: int | None) -> int:
    """The offset that is asked for, wherever it lies. Pure."""
    match target.where:
        case Where.EARLIEST:
            return bounds.start
        case Where.LATEST:
            return bounds.end
        case Where.OFFSET:
            return target.value
        case Where.TIME:
            return bounds.end if bounds.at_time is None else bounds.at_time
        case Where.SHIFT:
            if committed is None:
                raise Invalid(
                    "there is no committed offset to shift",
                    hint="Choose --to-earliest, --to-latest or --to-offset.",
                )
            return committed + target.value


def moves(
    topic: str, target: Target, bounds: Mapping[int, Bounds], committed: Mapping[Place, int]
) -> list[Move]:
    """What the reset changes, partition by partition. Pure."""
    planned = []
    for partition, each in sorted(bounds.items()):
        before = committed.get((topic, partition))
        wanted = new_offset(target, each, before)
        after = min(max(wanted, each.start), each.end)
        planned.append(Move(topic, partition, before, after, clamped=after != wanted))
    return planned


async def plan(
    connection: Connection, group: str, topic: str, partitions: Iterable[int], target: Target
) -> list[Move]:
    """What the reset would change. Without partitions it is all of the topic's."""
    there = await partitions_of(connection, topic)
    numbers = sorted(set(partitions)) or there
    unknown = [number for number in numbers if number not in there]
    if unknown:
        raise NotFound(
            f"topic {topic} has no partition {unknown[0]}",
            hint=f"It has {len(there)}, from 0 on.",
        )
    starts = await offsets_at(connection, topic, dict.fromkeys(numbers, EARLIEST))
    ends = await offsets_at(connection, topic, dict.fromkeys(numbers, LATEST))
    times: dict[int, int] = {}
    if target.where is Where.TIME:
        times = await offsets_at(connection, topic, dict.fromkeys(numbers, target.value))
    bounds = {
        number: Bounds(starts[number], ends[number], _known(times.get(number)))
        for number in numbers
    }
    return moves(topic, target, bounds, await committed_offsets(connection, group))


async def execute(connection: Connection, group: str, planned: Iterable[Move]) -> None:
    """Commit a plan. The group must have no members."""
    await require_no_members(connection, group)
    await commit_offsets(
        connection, group, {(move.topic, move.partition): move.after for move in planned}
    )


def _known(offset: int | None) -> int | None:
    return None if offset is None or offset < 0 else offset
