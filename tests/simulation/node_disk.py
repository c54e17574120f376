"""A node's disk under fire: partitions that are written, overwritten, cut off, checkpointed,
compacted and removed at once, on a disk that fails, fills up, and loses its power.

A seed has several lives of one data directory. Each ends with a power loss, a kill or a close;
what the next one finds must be what was promised (``segments.model``).
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from random import Random
from unittest.mock import patch

from segments.model import DiskModel, ends
from segments.witness import Witness, read_all
from simulation.mortal import MortalNode
from stratalog.errors import Closed, Corrupt, StratalogError
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions, Entry
from stratalog.segments.write_ahead import journal
from stratalog.testing import FileCall, Simulation, simulate

LIVES = 5
NAMES = ("a", "b", "c")
TIME_MAX_S = 3600.0


def options_of(random: Random) -> DiskOptions:
    return DiskOptions(
        wal_file_bytes=random.choice((512, 1024, 4096)),
        wal_files_max=random.choice((1, 2, 8)),
        batch_bytes_max=random.choice((128, 512, 4096)),
        queue_bytes_max=random.choice((256, 4096)),
        segment_entries_max=random.choice((2, 4, 16)),
        segment_bytes_max=random.choice((256, 1024)),
        major_after_minors=random.choice((None, 1, 3)),
        merge_after_files=random.choice((None, 2, 4)),
        memory_bytes_max=random.choice((2000, 1 << 30)),
        read_bytes=random.choice((32, 1024)),
        open_files_max=random.choice((1, 8)),
        index_cache_bytes=random.choice((1, 4096)),
        timeout_s=5.0,
    )


@dataclass
class Faults:
    """A disk that fails now and then, for a while, and heals."""

    random: Random
    share: float
    left: int = 0
    error: int = errno.EIO

    def __call__(self, _: FileCall) -> int | None:
        if not self.left and self.random.random() < self.share:
            self.left = self.random.choice((1, 1, 3, 12))
            self.error = self.random.choice((errno.EIO, errno.ENOSPC))
        if self.left:
            self.left -= 1
            return self.error
        return None


class Fire(MortalNode):
    """One seed."""

    crash_share = 0.6
    calls_max = 150

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.model = DiskModel()
        self.options = options_of(self.random)
        self.written = 0

    async def run(self) -> str:
        for number in range(LIVES):
            self.trace.note(f"life {number}")
            await self.life()
            self.files.fail_if(None)
        witness = await self.opened()
        await self.look(witness, "the end")
        await witness.disk.flush()
        await witness.check()
        await witness.check_leftovers()
        assert not self.simulation.unhandled, self.simulation.unhandled
        return self.trace.digest()

    async def opened(self) -> Witness:
        disk = await Disk.open(self.files, self.options, runtime=self.simulation.runtime)
        return Witness(disk, self.files, self.model)

    async def look(self, witness: Witness, when: str) -> None:
        await witness.check(settles=True)
        for name, known in self.model.partitions.items():
            self.trace.note(f"{when}: {name} {sorted(known.log)} {known.checkpoint}")

    # Lives

    async def live(self) -> None:
        witness = await self.opened()
        await self.look(witness, "opened")
        if self.random.random() < 0.5:
            self.files.fail_if(Faults(self.random, self.random.choice((0.005, 0.03))))
        workers = self.random.randint(1, 4)
        await asyncio.gather(*(self.work(witness) for _ in range(workers)))
        await witness.settle()
        self.files.fail_if(None)
        await witness.check()
        end = self.random.random()
        if end < 0.4:
            await witness.disk.flush()
            await witness.check()
            await witness.check_leftovers()
        if end < 0.7:
            await witness.disk.close()
        else:
            self.files.crash()

    # Work

    async def work(self, witness: Witness) -> None:
        for _ in range(self.random.randint(3, 15)):
            name = self.random.choice(NAMES)
            try:
                await self.operation(witness, name)
            except (Corrupt, Closed):
                raise
            except StratalogError as error:
                self.trace.note(f"{name}: {error.kind} {error}")
            await asyncio.sleep(self.random.choice((0.0, 0.0, 0.002, 0.2)))

    async def operation(self, witness: Witness, name: str) -> None:
        random, drawn = self.random, self.random.random()
        if name not in self.model.partitions or not self.model.partitions[name].is_here:
            self.trace.note(f"create {name}")
            await witness.create(name)
        elif drawn < 0.4:
            await witness.append(name, self.payloads(), self.epoch_of(witness, name))
        elif drawn < 0.58:
            await self.write(witness, name)
        elif drawn < 0.63:
            await self.write_together(witness)
        elif drawn < 0.68:
            last = self.model.partitions[name].last
            await witness.truncate(name, random.randint(max(0, last - 6), last))
        elif drawn < 0.83:
            await self.checkpoint(witness, name)
        elif drawn < 0.88:
            await witness.compact(name)
        elif drawn < 0.92:
            partition = await witness.disk.partition(name, create=False)
            await read_all(partition)
            await partition.state()
        elif drawn < 0.97:
            await witness.disk.flush()
        else:
            self.trace.note(f"remove {name}")
            await witness.remove(name)

    def payloads(self) -> list[bytes]:
        count = self.random.choice((1, 1, 2, 5))
        self.written += count
        size = self.random.choice((0, 8, 60, 300))
        return [b"%d." % (self.written - at) + bytes(size) for at in range(count)]

    def epoch_of(self, witness: Witness, name: str) -> int:
        """That of the log, or a newer one."""
        found = witness.disk._find(name)
        epoch = found._tail.epoch if found is not None else 0
        return max(1, epoch + self.random.choice((0, 0, 0, 1)))

    async def write(self, witness: Witness, name: str) -> None:
        """Somewhere near the end: sparse, overwriting, after a gap, or what was there already."""
        last = self.model.partitions[name].last
        before = [0, *ends(self.model.partitions[name].log)]
        previous = self.random.choice(
            (last, last, before[-1], before[-min(4, len(before))], last + 1)
        )
        index, entries = previous, []
        epoch = self.epoch_of(witness, name)
        for payload in self.payloads():
            index += self.random.choice((1, 1, 1, 3))
            entries.append(Entry(index, epoch, payload, self.random.choice((1, 1, 1, 4))))
            index = entries[-1].last
        await witness.write(name, previous, entries)

    async def write_together(self, witness: Witness) -> None:
        """To all partitions that are there, and a note, in one write."""
        there = [name for name, known in self.model.partitions.items() if known.is_here]
        self.written += 1
        payload = b"%d together" % self.written
        note = f"note {self.written}"
        await witness.submit(dict.fromkeys(there, payload), note, self.random.choice((1, 3)))

    async def checkpoint(self, witness: Witness, name: str) -> None:
        known = self.model.partitions[name]
        places = [known.checkpoint.index, *ends(known.log)]
        index = max(known.checkpoint.index, self.random.choice(places))
        alive = [known.living(at) for at in known.log if at <= index and known.is_alive(at)]
        live = IndexSet.of([at for at in alive if self.random.random() < 0.4])
        self.written += 1
        await witness.checkpoint(name, max(1, index), b"state %d" % self.written, live)


def run_seed(seed: int) -> str:
    """Run one seed; gives the digest of its trace. Journals are small, so that they get full."""
    with patch.object(journal, "FILE_BYTES_MIN", 4096 if seed % 3 else 512):
        return simulate(lambda simulation: Fire(simulation).run(), seed, time_max_s=TIME_MAX_S)
