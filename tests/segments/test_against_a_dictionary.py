"""A node's disk against a plain dictionary with live sets, operation by operation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from segments.model import DiskModel, end_of, ends
from segments.power import OPTIONS
from segments.witness import Witness
from stratalog.errors import Conflict, Invalid, NotFound, NotHappened, Trimmed
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, Entry
from stratalog.testing import SimulatedFiles
from stratalog.testing.loop import SimulatedLoop
from stratalog.testing.simulation import SimulatedRuntime

NAMES = st.sampled_from(["a", "b"])
SIZES = st.lists(st.integers(0, 60), min_size=1, max_size=5)
SPANS = st.sampled_from([1, 1, 2, 7])


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

    def entries(
        self, previous: int, epoch: int, sizes: list[int], gap: int, span: int = 1
    ) -> list[Entry]:
        made, last = [], previous
        for size in sizes:
            self.count += 1
            made.append(Entry(last + gap, epoch, b"%d." % self.count + bytes(size), span))
            last = made[-1].last
        return made

    def epoch_of(self, name: str) -> int:
        log = self.model.partitions[name].log
        return log[max(log)][0] if log else 1

    @rule(name=NAMES, sizes=SIZES, gap=st.sampled_from([1, 1, 3]), span=SPANS)
    def write(self, name: str, sizes: list[int], gap: int, span: int) -> None:
        """At the end: contiguous or sparse."""
        last = self.run(self._there(name))
        entries = self.entries(last, self.epoch_of(name), sizes, gap, span)
        self.run(self.witness.write(name, last, entries))

    @rule(span=SPANS)
    def write_together(self, span: int) -> None:
        """To both partitions, and a note."""
        for name in ("a", "b"):
            self.run(self._there(name))
        self.count += 1
        payloads = dict.fromkeys(("a", "b"), b"%d together" % self.count)
        self.run(self.witness.submit(payloads, f"note {self.count % 4}", span))

    @rule(name=NAMES, sizes=SIZES, back=st.integers(1, 8), span=SPANS)
    def overwrite(self, name: str, sizes: list[int], back: int, span: int) -> None:
        """A suffix, under a newer epoch."""
        self.run(self._there(name))
        known = self.model.partitions[name]
        places = [0, *ends(known.log)]
        previous = max(places[-min(back, len(places))], known.checkpoint.index)
        entries = self.entries(previous, self.epoch_of(name) + 1, sizes, 1, span)
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
        before = {at: entry for at, entry in known.log.items() if at < indexes[0]}
        previous = max(end_of(before), known.checkpoint.index)
        entries = [Entry(at, *known.log[at]) for at in indexes]
        try:
            self.run(self.witness.write(name, previous, entries))
        except Conflict:
            return

    @rule(name=NAMES, count=st.integers(1, 4), same_size=st.booleans())
    def send_others_again(self, name: str, count: int, same_size: bool) -> None:
        """Under an index and an epoch that are here: a conflict, wherever the first ones lie."""
        self.run(self._there(name))
        known = self.model.partitions[name]
        indexes = sorted(at for at in known.log if at > known.checkpoint.index)[-count:]
        if not indexes:
            return
        before = {at: entry for at, entry in known.log.items() if at < indexes[0]}
        epoch, payload, span = known.log[indexes[0]]
        other = b"!" * len(payload) if same_size else payload + b"!"
        with pytest.raises(Conflict):
            self.run(
                self.witness.write(
                    name,
                    max(end_of(before), known.checkpoint.index),
                    [Entry(indexes[0], epoch, other, span)],
                )
            )

    @rule(name=NAMES, back=st.integers(0, 8))
    def cut_off(self, name: str, back: int) -> None:
        self.run(self._there(name))
        after = self.an_end(name, back)
        self.run(self.witness.truncate(name, after))

    @rule(name=NAMES, back=st.integers(0, 8), is_cut=st.booleans())
    def divide(self, name: str, back: int, is_cut: bool) -> None:
        """A cut or a checkpoint in the middle of an entry is refused."""
        last = self.run(self._there(name))
        known = self.model.partitions[name]
        index = max(known.checkpoint.index, last - back)
        if not any(at <= index < at + entry[2] - 1 for at, entry in known.log.items()):
            return
        if not index or index == known.checkpoint.index:
            return
        refused = (
            self.witness.truncate(name, index)
            if is_cut
            else self.witness.checkpoint(name, index, b"divided")
        )
        with pytest.raises(Invalid):
            self.run(refused)

    def an_end(self, name: str, back: int) -> int:
        """Where an entry ends, some entries before the end, at or above the checkpoint."""
        known = self.model.partitions[name]
        places = [known.checkpoint.index, *ends(known.log)]
        return max(known.checkpoint.index, places[-min(back + 1, len(places))])

    @rule(name=NAMES, back=st.integers(0, 6), random=st.randoms(use_true_random=False))
    def checkpoint(self, name: str, back: int, random: Random) -> None:
        self.run(self._there(name))
        known = self.model.partitions[name]
        index = self.an_end(name, back)
        if not index:
            return
        alive = [known.living(at) for at in known.log if at <= index and known.is_alive(at)]
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
        first = next((at for at, each in known.log.items() if 0 <= index - at < each[2]), 0)
        partition = self.run(self.witness.disk.partition(name))
        try:
            entry = self.run(partition.get(index))
        except Trimmed:
            assert index <= known.checkpoint.index
            assert not first or not known.is_alive(first)
        except NotFound:
            assert not first
        else:
            assert entry.index == first
            assert (entry.epoch, entry.payload, entry.span) == known.log[first]

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

    def teardown(self) -> None:
        for task in self.loop.live_tasks():
            task.cancel()
        self.run(asyncio.sleep(1))
        self.loop.close()


DiskMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestDiskMachine = DiskMachine.TestCase
