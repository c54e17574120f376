"""Closing a disk while something is going on. Its directory may be another process's afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable
from random import Random
from unittest.mock import patch

import pytest

from segments.replicas import SMALL, checkpointed_source, contents, copied, copy, fill, opened
from stratalog.errors import Closed, Corrupt, Invalid, StratalogError
from stratalog.indexset import IndexSet
from stratalog.segments import Disk
from stratalog.segments.format import frame
from stratalog.segments.format.clean_close import CLOSED
from stratalog.testing import FileCall, SimulatedFiles, Simulation, simulate


def test_closing_waits_for_a_checkpoint_that_has_begun() -> None:
    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(simulation.seed))
        disk = await Disk.open(files, SMALL, runtime=simulation.runtime)
        partition = await disk.partition("orders")
        await fill(partition, 1, 9)
        taking = asyncio.create_task(partition.checkpoint(5, b"state", IndexSet.of([2])))
        await asyncio.sleep(simulation.random.uniform(0, 0.01))
        await disk.close()
        calls = len(files.calls)
        await taking
        assert files.calls[calls:] == []
        async with await Disk.open(files, SMALL, runtime=simulation.runtime) as disk:
            assert (await disk.partition("orders")).checkpoint_index == 5

    for seed in range(30):
        simulate(main, seed)


def test_a_copy_that_is_overtaken_by_a_close_does_not_touch_the_journal_any_more() -> None:
    async def main(simulation: Simulation) -> bool:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with opened(simulation) as source:
            await checkpointed_source(source)
            disk = await Disk.open(files, SMALL, runtime=simulation.runtime)
            copying = asyncio.create_task(copy(source, await disk.partition("orders")))
            await asyncio.sleep(simulation.random.uniform(0, 0.06))
            await disk.close()
            calls = len(files.calls)
            _, received = await copying
            late = [call for call in files.calls[calls:] if call.path.startswith("journal")]
            assert late == []
            async with opened(simulation, files) as replica:
                await copied(source, replica)
                assert await contents(replica) == await contents(source)
        return isinstance(received, Closed)

    assert sum(simulate(main, seed) for seed in range(40)) > 10


def closed_after(rule: Callable[[FileCall], int | None] | None, *, at_once: bool) -> SimulatedFiles:
    """A directory after a life in which an append met with a disk that fails like this."""
    files = SimulatedFiles(random=Random(1), at_once=at_once)

    async def main(simulation: Simulation) -> None:
        disk = await Disk.open(files, SMALL, runtime=simulation.runtime)
        partition = await disk.partition("orders")
        await partition.append([b"kept"])
        files.fail_if(rule)
        with contextlib.suppress(StratalogError):
            await partition.append([b"perhaps"])
        with contextlib.suppress(StratalogError):
            await disk.partition("more")
        await disk.close()

    simulate(main, 1)
    files.fail_if(None)
    return files


def fails(
    *operations: str, where: str = "", error: int = errno.EIO
) -> Callable[[FileCall], int | None]:
    def rule(call: FileCall) -> int | None:
        hits = call.operation in operations and call.path.startswith(where)
        return error if hits else None

    return rule


SYNCS = ("sync", "write_durably")
DOUBTS = {
    "nothing": (None, True),
    "a batch": (fails(*SYNCS, "create", where="wal/"), False),
    "a record": (fails(*SYNCS, "create", where="journal/"), False),
    "the close itself": (fails("create", "sync", "rename", where="CLOSED"), False),
}


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("what", DOUBTS)
def test_only_a_close_without_doubt_says_that_it_was_clean(what: str, at_once: bool) -> None:
    rule, is_clean = DOUBTS[what]
    files = closed_after(rule, at_once=at_once)
    assert (CLOSED in files.names()) is is_clean
    for seed in range(5):
        survivor = files.after_power_loss(Random(seed))

        async def main(simulation: Simulation, survivor: SimulatedFiles = survivor) -> None:
            disk = await Disk.open(survivor, SMALL, runtime=simulation.runtime)
            partition = await disk.partition("orders", create=False)
            assert partition.last >= 1
            assert CLOSED not in survivor.names()

        simulate(main, 2)


def test_an_opening_that_is_refused_leaves_it_there() -> None:
    files = closed_after(None, at_once=False)
    (wal,) = [path for path in files.names() if path.startswith("wal/")]
    files.damage(wal, 10, 1)

    async def main(simulation: Simulation) -> None:
        with pytest.raises(Corrupt):
            await Disk.open(files, SMALL, runtime=simulation.runtime)

    simulate(main, 2)
    assert CLOSED in files.names()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("operation", ["create", "allocate", "write", "sync"])
def test_an_opening_that_fails_leaves_it_there(operation: str, error: int) -> None:
    """Also after the power was lost. Then the next one still notices damage to the last batch."""
    files = closed_after(None, at_once=False)
    fails_new = fails(operation, where="journal/", error=error)

    async def fail(simulation: Simulation) -> None:
        files.fail_if(fails_new)
        with pytest.raises(StratalogError):
            await Disk.open(files, SMALL, runtime=simulation.runtime)
        files.fail_if(None)

    simulate(fail, 2)
    assert CLOSED in files.names()
    for seed in range(5):
        survivor = files.after_power_loss(Random(seed))
        assert CLOSED in survivor.names()
        (wal,) = [path for path in survivor.names() if path.startswith("wal/")]
        damaged = survivor.after_kill()
        damaged.damage(wal, 70, 1)

        async def refused(simulation: Simulation, damaged: SimulatedFiles = damaged) -> None:
            with pytest.raises(Corrupt):
                await Disk.open(damaged, SMALL, runtime=simulation.runtime)

        async def opens(simulation: Simulation, survivor: SimulatedFiles = survivor) -> None:
            async with await Disk.open(survivor, SMALL, runtime=simulation.runtime):
                assert not {CLOSED, "CLOSED.new"} & set(survivor.names())

        simulate(refused, 3)
        simulate(opens, 4)


def test_an_older_version_refuses_what_this_one_has_opened() -> None:
    """Its heads go to major 1 only."""
    files = closed_after(None, at_once=False)

    async def main(simulation: Simulation) -> None:
        with pytest.raises(Invalid, match="format 3") as refused:
            await Disk.open(files, SMALL, runtime=simulation.runtime)
        assert "newer version" in refused.value.hint

    with patch.object(frame, "_MAJORS", {}):
        simulate(main, 2)
