"""A node's disk against a plain dictionary with live sets, operation by operation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from segments.model import DiskModel
from segments.power import OPTIONS
from segments.witness import Witness
from stratalog.errors import Conflict, NotFound, NotHappened, Trimmed
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, Entry
from stratalog.testing import SimulatedFiles
from stratalog.testing.loop import SimulatedLoop
from stratalog.testing.simulation import SimulatedRuntime

NAMES = st.sampled_from(["a", "b"])
SIZES = st.lists(st.integers(0, 60), min_size=1, max_size=5)


class DiskMachine(RuleBasedStateMachine):
    """Every rule compares with the model what it touches; the invariant compares everything."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = SimulatedLoop(Random(0))
        self.files = SimulatedFiles()
        self.model = DiskModel()
        self.count = 0

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize()
    def open(self) -> None:
        self.run(self._open())

    async def _open(self) -> None:
        disk = await Disk.open(self.files, OPTIONS, runtime=SimulatedRuntime(self.loop))
        self.witness = Witness(disk, self.files, self.model)
        await self.witness.check(settles=True)

    async def _there(self, name: str) -> int:
        """Make it if need be; gives its last index."""
        if name not in self.model.partitions:
            await self.witness.create(name)
        return self.model.partitions[name].last

    def entries(self, previous: int, epoch: int, sizes: list[int], gap: int) -> list[Entry]:
        made, index = [], previous
        for size in sizes:
            self.count += 1
            index += gap
            made.append(Entry(index, epoch, b"%d." % self.count + bytes(size)))
        return made

    def epoch_of(self, name: str) -> int:
        log = self.model.partitions[name].log
        return log[max(log)][0] if log else 1

    @rule(name=NAMES, sizes=SIZES, gap=st.sampled_from([1, 1, 3]))
    def write(self, name: str, sizes: list[int], gap: int) -> None:
        """At the end: contiguous or sparse."""
        last = self.run(self._there(name))
        entries = self.entries(last, self.epoch_of(name), sizes, gap)
        self.run(self.witness.write(name, last, entries))

    @rule(name=NAMES, sizes=SIZES, back=st.integers(1, 8))
    def overwrite(self, name: str, sizes: list[int], back: int) -> None:
        """A suffix, under a newer epoch."""
        self.run(self._there(name))
        known = self.model.partitions[name]
        places = [0, *sorted(known.log)]
        previous = max(places[-min(back, len(places))], known.checkpoint.index)
        entries = self.entries(previous, self.epoch_of(name) + 1, sizes, 1)
        self.run(self.witness.write(name, previous, entries))

    @rule(name=NAMES)
    def write_after_a_gap(self, name: str) -> None:
        """It is refused, and a write that fits is taken again."""
        last = self.run(self._there(name))
        for refusal in (Conflict, NotHappened):
            try:
                self.run(
                    self.witness.write(name, last + 2, self.entries(last + 2, 1 << 20, [1], 1))
                )
            except refusal:
                continue
            raise AssertionError("a gap was not noticed")
        self.run(self.witness.append(name, [b"fits"], self.epoch_of(name)))

    @rule(name=NAMES, count=st.integers(1, 4))
    def send_again(self, name: str, count: int) -> None:
        """It is acknowledged or refused, and changes nothing."""
        self.run(self._there(name))
        known = self.model.partitions[name]
        indexes = sorted(at for at in known.log if at > known.checkpoint.index)[-count:]
        if not indexes:
            return
        before = [at for at in known.log if at < indexes[0]]
        previous = max(max(before, default=0), known.checkpoint.index)
        entries = [Entry(at, *known.log[at]) for at in indexes]
        try:
            self.run(self.witness.write(name, previous, entries))
        except Conflict:
            return

    @rule(name=NAMES, back=st.integers(0, 8))
    def cut_off(self, name: str, back: int) -> None:
        last = self.run(self._there(name))
        floor = self.model.partitions[name].checkpoint.index
        self.run(self.witness.truncate(name, max(floor, last - back)))

    @rule(name=NAMES, back=st.integers(0, 6), random=st.randoms(use_true_random=False))
    def checkpoint(self, name: str, back: int, random: Random) -> None:
        last = self.run(self._there(name))
        known = self.model.partitions[name]
        index = max(known.checkpoint.index, last - back)
        if not index:
            return
        alive = [at for at in known.log if at <= index and self.is_alive(name, at)]
        live = IndexSet.of([at for at in alive if random.random() < 0.5])
        self.count += 1
        self.run(self.witness.checkpoint(name, index, b"state %d" % self.count, live))

    @rule(name=NAMES)
    def compact(self, name: str) -> None:
        self.run(self._there(name))
        assert self.run(self.witness.compact(name))

    @rule()
    def flush(self) -> None:
        self.run(self.witness.disk.flush())
        self.run(self.witness.check_leftovers())

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        self.run(self._there(name))
        self.run(self.witness.remove(name))

    @rule(name=NAMES, back=st.integers(-1, 10))
    def get(self, name: str, back: int) -> None:
        """One entry, or why there is none."""
        index = max(1, self.run(self._there(name)) - back)
        known = self.model.partitions[name]
        partition = self.run(self.witness.disk.partition(name))
        try:
            entry = self.run(partition.get(index))
        except Trimmed:
            assert index <= known.checkpoint.index
            assert index not in known.checkpoint.live
        except NotFound:
            assert index not in known.log
        else:
            assert (entry.epoch, entry.payload) == known.log[index]

    @rule()
    def close_and_open(self) -> None:
        self.run(self.witness.disk.close())
        self.run(self._open())

    @rule()
    def kill_and_open(self) -> None:
        self._end(self.files.after_kill())

    @rule(random=st.randoms(use_true_random=False))
    def lose_power_and_open(self, random: Random) -> None:
        self._end(self.files.after_power_loss(random))

    def _end(self, survivor: SimulatedFiles) -> None:
        """The process is gone with all its tasks."""
        self.files.crash()
        for task in self.loop.live_tasks():
            task.cancel()
        self.run(asyncio.sleep(1))
        self.files = survivor
        self.run(self._open())

    @invariant()
    def everything_is_as_promised(self) -> None:
        if hasattr(self, "witness"):
            self.run(self.witness.check())

    def is_alive(self, name: str, index: int) -> bool:
        checkpoint = self.model.partitions[name].checkpoint
        return index > checkpoint.index or index in checkpoint.live

    def teardown(self) -> None:
        for task in self.loop.live_tasks():
            task.cancel()
        self.run(asyncio.sleep(1))
        self.loop.close()


DiskMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestDiskMachine = DiskMachine.TestCase
