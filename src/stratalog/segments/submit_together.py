"""Writing to several partitions at once: all of it becomes durable, or nothing.

The sections of one write are in one batch of the WAL, and a batch counts as a whole or not at all.
So all of them have to be admitted before one of them is put: if a partition refuses its section,
the tails of the others are as they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from stratalog.errors import Invalid
from stratalog.segments.admit_write import Admitted, check_write
from stratalog.segments.format import Entries
from stratalog.segments.notes import Notes, NotesDisk
from stratalog.segments.partition import WRITE_OVERHEAD_BYTES, Partition
from stratalog.segments.write_ahead import GroupWrite

Part = tuple[Partition, int, Entries]


class _Disk(NotesDisk, Protocol):
    notes: Notes


def submit_together(
    disk: _Disk, sections: Sequence[Part], notes: Mapping[str, bytes | None] | None
) -> asyncio.Future[None]:
    """As ``Disk.submit``."""
    disk.must_be_open()
    parts = list(sections)
    if notes:
        parts.append((disk.notes.partition, *disk.notes.entries(notes)))
    size = _checked(disk, parts)
    answer: asyncio.Future[None] = disk.context.meters.loop.create_future()
    disk.wal.back_pressure.take(size)
    try:
        admitted = _admitted(parts)
    except BaseException:
        disk.wal.back_pressure.give_back(size)
        raise
    written = tuple(partition.in_flight(each) for partition, each in admitted)
    if written:
        disk.wal.put(GroupWrite(written, size, answer))
    else:
        disk.wal.back_pressure.give_back(size)
        answer.set_result(None)
    return answer


def _checked(disk: _Disk, parts: Sequence[Part]) -> int:
    """The bytes of the write. ``Invalid`` if no disk could accept it."""
    bytes_max, size = disk.context.options.write_bytes_max, 0
    for partition, previous, entries in parts:
        partition.must_take_writes()
        check_write(previous, entries, bytes_max)
        size += entries.stored_bytes + WRITE_OVERHEAD_BYTES
    if not parts:
        raise Invalid("a write has at least one section or note")
    if len({partition.number for partition, *_ in parts}) != len(parts):
        raise Invalid(
            "a partition comes twice in one write", hint="Join its entries to one section."
        )
    payload_bytes = sum(entries.payload_bytes for *_, entries in parts)
    if payload_bytes > bytes_max:
        raise Invalid(
            f"a write of {payload_bytes} bytes is larger than {bytes_max}",
            hint="Split it, or raise write_bytes_max.",
            expected=bytes_max,
            actual=payload_bytes,
        )
    return size


def _admitted(parts: Sequence[Part]) -> list[tuple[Partition, Admitted]]:
    """All of them, or none. Without those that are here already."""
    admitted, before = [], []
    try:
        for partition, previous, entries in parts:
            tail = partition.tail_now
            found = partition.admitted(previous, entries)
            before.append((partition, tail))
            if found is not None:
                admitted.append((partition, found))
    except BaseException:
        for partition, tail in before:
            partition.restore_tail(tail)
        raise
    return admitted
