"""The steps of a disk's life that are cut short at every file-system call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from segments.power import OPTIONS, Scenario, fail_next_sync, flushing_fails
from segments.witness import Witness, next_wal_prepared
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, Entry, notes
from stratalog.segments.write_ahead import journal

MERGING = replace(OPTIONS, merge_after_files=4)


def payloads(name: str, first: int, count: int, size: int = 40) -> list[bytes]:
    return [f"{name}{first + at}.".encode().ljust(size, b"x") for at in range(count)]


def entries(name: str, indexes: Sequence[int], epoch: int, size: int = 40) -> list[Entry]:
    return [
        Entry(index, epoch, f"{name}{index}@{epoch}.".encode().ljust(size, b"x"))
        for index in indexes
    ]


async def gathered(*work: Awaitable[object]) -> None:
    """All to their ends; then the first error is raised."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


# What was before


async def two_partitions(witness: Witness) -> None:
    for name in "ab":
        await witness.create(name)
        await witness.append(name, payloads(name, 1, 5))


async def several_segments(witness: Witness) -> None:
    await two_partitions(witness)
    await witness.disk.flush()
    for name in "ab":
        await witness.append(name, payloads(name, 6, 5))
    await witness.disk.flush()
    await witness.append("a", payloads("a", 11, 4))


async def small_segments(witness: Witness) -> None:
    """As many as are left alone."""
    await witness.create("a")
    await witness.create("b")
    for number in range(4):
        await witness.append("a", payloads("a", 1 + number, 1))
        await witness.disk.flush()


async def half_dead(witness: Witness) -> None:
    """Segments of which little lives, below a checkpoint."""
    await several_segments(witness)
    await witness.disk.flush()
    await witness.checkpoint("a", 12, b"half dead", IndexSet.of([1, 6, 10]))


# What is cut short


async def birth(witness: Witness) -> None:
    await witness.create("a")
    await witness.append("a", payloads("a", 1, 2))


async def writing_with_roll_over(witness: Witness) -> None:
    for turn in range(2):
        await gathered(
            witness.append("a", payloads("a", 100 * turn, 3)),
            witness.append("b", payloads("b", 100 * turn, 2)),
            witness.append("a", payloads("a", 100 * turn + 3, 1, size=400)),
        )


async def writing_over(witness: Witness) -> None:
    """Roll-overs to prepared files: first a new one, then those that were flushed."""
    for turn in range(1, 6):
        await witness.append("a", payloads("a", 100 * turn, 1, size=400))
        await next_wal_prepared(witness.disk)
        await witness.append("b", payloads("b", 100 * turn, 1, size=60))
        await witness.disk._engine.flusher.drain()


async def failing_while_writing_over(witness: Witness) -> None:
    """The last of these batches cannot be synced, and is written again to a new file."""
    await writing_over(witness)
    fail_next_sync(witness.files)
    await witness.append("a", payloads("a", 900, 1, size=100))
    await witness.append("b", payloads("b", 900, 1))
    witness.files.fail_if(None)


async def sparse_writing(witness: Witness) -> None:
    await witness.write("a", 5, entries("a", [7, 9], 1))
    await witness.write("a", 9, entries("a", [12, 30], 2))
    await witness.disk.flush()


async def flush(witness: Witness) -> None:
    await witness.disk.flush()


async def overwriting(witness: Witness) -> None:
    """A suffix in memory, then one in segments, then one in both, each under a newer epoch."""
    await witness.write("a", 12, entries("a", [13, 14, 15], 2))
    await witness.write("a", 3, entries("a", [4, 5], 3))
    await witness.disk.flush()
    await witness.append("a", payloads("a", 6, 2), 3)
    await witness.write("a", 4, entries("a", [5], 4))
    await witness.disk.flush()


async def cutting_off(witness: Witness) -> None:
    await witness.truncate("a", 12)
    await witness.append("a", payloads("a", 13, 1))
    await witness.truncate("a", 7)
    await witness.disk.flush()
    await witness.truncate("b", 0)
    await witness.append("a", payloads("a", 8, 2))


async def checkpoint_without_live(witness: Witness) -> None:
    await witness.checkpoint("a", 9, b"nothing lives")
    await witness.checkpoint("b", 10, b"nothing at all")


async def checkpoint_with_live(witness: Witness) -> None:
    """Of which some are only in memory when the checkpoint is taken."""
    await witness.append("a", payloads("a", 15, 2))
    await witness.checkpoint("a", 15, b"some live", IndexSet.of([2, 12, 15]))
    await witness.disk.flush()
    await witness.checkpoint("a", 16, b"fewer live", IndexSet.of([2, 15]))


async def major(witness: Witness) -> None:
    await witness.compact("a")


async def major_while_much_happens(witness: Witness) -> None:
    """Segments arrive, a suffix is overwritten, the checkpoint moves."""

    async def others() -> None:
        await witness.append("a", payloads("a", 15, 2))
        await witness.disk.flush()
        await witness.write("a", 12, entries("a", [13], 5))
        await witness.checkpoint("a", 13, b"moved", IndexSet.of([1, 10]))

    await gathered(witness.compact("a"), others())
    await witness.disk.flush()
    await witness.compact("a")


async def removal_while_it_works(witness: Witness) -> None:
    """A flush, a compaction and a checkpoint of it are going on. The other one is not harmed."""
    await witness.append("a", payloads("a", 15, 2))
    await witness.append("b", payloads("b", 11, 2))
    await gathered(
        witness.disk.flush(),
        witness.compact("a"),
        witness.remove("a"),
        witness.append("b", payloads("b", 13, 1)),
    )


async def journal_rewriting(witness: Witness) -> None:
    """With a limit of almost nothing the journal is rewritten again and again."""
    await witness.append("a", payloads("a", 6, 2))
    await witness.create("c")
    await witness.disk.flush()
    await witness.checkpoint("a", 6, b"rewritten", IndexSet.of([3]))


async def recovery(witness: Witness) -> None:
    """Opening alone, with WAL files to replay and flush."""
    await witness.disk.flush()


async def recovery_beside_a_prepared_file(witness: Witness) -> None:
    """The same, where files that were written over and a prepared one are found."""
    await recovery(witness)


async def written_over(witness: Witness) -> None:
    """None of the last files is flushed, and the next one is prepared."""
    await two_partitions(witness)
    await writing_over(witness)
    witness.files.fail_if(flushing_fails)
    await witness.append("a", payloads("a", 700, 2, size=200))
    await next_wal_prepared(witness.disk)


async def much_to_recover(witness: Witness) -> None:
    """WAL files of which one overwrites what others have, and segments, and none is flushed."""
    await witness.create("a")
    await witness.create("b")
    await witness.append("a", payloads("a", 1, 8))
    await witness.disk.flush()
    await witness.checkpoint("a", 4, b"four", IndexSet.of([2]))
    witness.files.fail_if(flushing_fails)
    await witness.append("a", payloads("a", 9, 4))
    await witness.append("b", payloads("b", 1, 1))
    await witness.disk._engine.wal.end_file()
    await witness.write("a", 6, entries("a", [7, 8], 2))
    await witness.checkpoint("a", 7, b"seven", IndexSet.of([2, 5]))
    await witness.append("a", payloads("a", 9, 2), 2)


async def closing_and_opening(witness: Witness) -> None:
    """A clean close with entries in the WAL, what it notes, and the opening that removes that."""
    runtime = witness.disk._engine.context.runtime
    await witness.append("a", payloads("a", 6, 2))
    for number in range(2):
        await witness.disk.close()
        witness.disk = await Disk.open(witness.files, OPTIONS, runtime=runtime)
        await witness.append("b", payloads("b", 6 + number, 1))


async def spans(witness: Witness) -> None:
    """Written, overwritten, flushed, partly alive, compacted."""
    wide = [Entry(6, 1, b"six".ljust(40), 3), Entry(9, 1, b"nine".ljust(40), 5)]
    await witness.write("a", 5, wide)
    await witness.write("b", 5, [Entry(6, 2, b"b6".ljust(40), 4)])
    await witness.disk.flush()
    await witness.write("a", 8, [Entry(9, 2, b"nine, again", 2), Entry(11, 2, b"end", 1)])
    await witness.checkpoint("a", 10, b"spans", IndexSet.of([1, 7]))
    await witness.disk.flush()
    await witness.append("a", payloads("a", 12, 1), 2)
    await witness.disk.flush()
    await witness.compact("a")


async def together(witness: Witness) -> None:
    """Entries of two partitions and a note, in one write."""
    await witness.submit({"a": b"a", "b": b"b"}, "note", 2)
    await gathered(
        witness.append("a", payloads("a", 20, 2)),
        witness.submit({"b": b"b", "a": b"a".ljust(400)}, "note with a large one"),
        witness.append("b", payloads("b", 20, 1)),
    )
    await witness.submit({"b": b"last"}, "last note")


async def merging(witness: Witness) -> None:
    """Of four small segments, while a suffix is overwritten and others write."""
    await witness.append("a", payloads("a", 5, 1))
    await witness.disk.flush()
    await gathered(
        witness.write("a", 3, entries("a", [4], 2)),
        witness.append("b", payloads("b", 6, 1)),
    )


SCENARIOS = [
    Scenario(birth, is_opened_before=False),
    Scenario(writing_with_roll_over, two_partitions),
    Scenario(writing_over, two_partitions),
    Scenario(sparse_writing, two_partitions),
    Scenario(flush, several_segments, is_opened_before=False),
    Scenario(overwriting, several_segments),
    Scenario(cutting_off, several_segments),
    Scenario(checkpoint_without_live, several_segments),
    Scenario(checkpoint_with_live, several_segments),
    Scenario(major, half_dead),
    Scenario(major_while_much_happens, half_dead),
    Scenario(removal_while_it_works, half_dead),
    Scenario(journal_rewriting, two_partitions),
    Scenario(recovery, much_to_recover, is_opened_before=False),
    Scenario(spans, two_partitions),
    Scenario(together, two_partitions),
    Scenario(merging, small_segments, options=MERGING),
    Scenario(recovery_beside_a_prepared_file, written_over, is_opened_before=False),
]
CLOSING = Scenario(closing_and_opening, two_partitions)
FAILING = Scenario(failing_while_writing_over, two_partitions)
ALL = [*SCENARIOS, CLOSING, FAILING]


WRITING = [
    scenario
    for scenario in SCENARIOS
    if scenario.step in (writing_with_roll_over, writing_over, overwriting)
]


@contextmanager
def patched(scenario: Scenario) -> Iterator[None]:
    """With the limits that a scenario needs."""
    small = scenario.step is journal_rewriting
    with (
        patch.object(journal, "FILE_BYTES_MIN", 1 if small else 4096),
        patch.object(notes, "LOGGED_BYTES_MIN", 40),
    ):
        yield
