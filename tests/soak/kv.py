"""`./dev soak kv`: key–value stores as processes that are killed, copied, moved and compacted.

Several stores, each a process with a data directory of its own, carry out the same operations. One
after another is killed with SIGKILL at a random moment. While it is dead its directory is verified,
and copied to another place, where the copy is opened and compared with the ledger; sometimes the
store goes on from the copy. In the end all of them have done the same operations, and must hold the
same values at the same indexes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

import typer

from examples.kv.kv import Store
from soak.kv_operations import CHECKPOINT_EVERY, OPTIONS, Ledger
from stratalog import IndexSet
from stratalog.cli.values import duration_s
from stratalog.segments import check_disk, inspect_disk

PROGRAM = Path(__file__).with_name("kv_process.py")
ROOT = Path(__file__).parents[2]
ACKNOWLEDGED_MAX = 400
"""A store is killed after at most so many further operations."""


@dataclass(frozen=True)
class KvSoakReport:
    """What was done, and what came of it: it ends here only if everything fitted."""

    operations: int
    kills: int
    copies: int
    moves: int
    segments: int
    live: int


class Replica:
    """One store: its directory, its process while it lives, and its ledger."""

    def __init__(self, folder: Path, name: str, seed: int) -> None:
        self.name = name
        self.path = folder / name
        self.acknowledged = 0
        """The last operation of which its process has told us."""
        self.ledger = Ledger(seed)
        self._folder = folder
        self._seed = seed
        self._places = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self, end: int | None = None) -> None:
        """Returns when it has opened its store: nothing that was acknowledged is gone."""
        ends = [] if end is None else [str(end)]
        paths = [str(ROOT), *filter(None, sys.path)]
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(self.path), str(self._seed), *ends],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )
        what, number = self._line()
        assert what == "opened", what
        self._found(number)

    def go_on(self, operations: int) -> None:
        """Wait until so many further operations are acknowledged."""
        goal = self.acknowledged + operations
        while self.acknowledged < goal:
            _, self.acknowledged = self._line()

    def kill(self) -> None:
        """With SIGKILL. What it had told before counts as acknowledged."""
        process = self._process
        if process is None:
            return
        process.kill()
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("done ") and line.endswith("\n"):
                self.acknowledged = int(line.split()[1])
        process.stdout.close()
        process.wait()
        self._process = None

    def finish(self) -> None:
        """Wait until it has ended by itself."""
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.acknowledged = int(line.split()[1])
        self._process.stdout.close()
        assert self._process.wait() == 0, f"{self.name} ended with {self._process.returncode}"
        self._process = None

    def copy(self) -> Path:
        """Of its directory, while it is dead."""
        self._places += 1
        place = self._folder / f"{self.name}-{self._places}"
        shutil.copytree(self.path, place)
        return place

    def move(self, place: Path) -> None:
        """Go on from a copy."""
        shutil.rmtree(self.path)
        self.path = place

    async def compare(self, path: Path) -> IndexSet:
        """Verify a directory, open it, and compare it with the ledger; gives what lives in it."""
        check = await check_disk(path)
        assert check.clean, f"{self.name}: {check.damages}"
        async with await Store.open(
            path, checkpoint_every=CHECKPOINT_EVERY, options=OPTIONS
        ) as store:
            self._found(store.applied)
            values = {key: value async for key, value in store.items()}
            assert values == self.ledger.values, f"{self.name} differs at {store.applied}"
            assert store.live == self.ledger.live, f"{self.name} differs at {store.applied}"
            return store.live

    def _found(self, last: int) -> None:
        """What is there is all that was acknowledged, and maybe more that was on its way."""
        assert last >= self.acknowledged, f"{self.name}: {last} is less than {self.acknowledged}"
        self.acknowledged = last
        self.ledger.go_to(last)

    def _line(self) -> tuple[str, int]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{self.name} ended with {self._process.wait()}"
        what, number = line.split()
        return what, int(number)


async def kv_soak(
    folder: Path,
    *,
    seed: int,
    kills_min: int = 0,
    duration_s: float = 0.0,
    replicas: int = 3,
    shown: bool = False,
) -> KvSoakReport:
    """Until so many kills are done and so much time is over. Raises if anything does not fit."""
    random = Random(seed)
    until = time.monotonic() + duration_s
    copies = moves = kills = 0
    with ExitStack() as stack:
        stores = [Replica(folder, f"store-{number}", seed) for number in range(replicas)]
        for store in stores:
            stack.callback(store.kill)
            store.start()
        while kills < kills_min or time.monotonic() < until:
            store = random.choice(stores)
            store.go_on(random.randrange(1, ACKNOWLEDGED_MAX))
            store.kill()
            kills += 1
            place = store.copy()
            copies += 1
            await store.compare(place)
            if random.random() < 0.5:
                store.move(place)
                moves += 1
            else:
                shutil.rmtree(place)
            store.start()
            if shown:
                done = " ".join(f"{each.acknowledged:,}" for each in stores)
                sys.stderr.write(f"\r{kills:,} kills; operations: {done} ")
                sys.stderr.flush()
        return await _end(stores, kills, copies, moves)


async def _end(stores: list[Replica], kills: int, copies: int, moves: int) -> KvSoakReport:
    """Bring all to the same operation, and compare them."""
    for store in stores:
        store.kill()
        await store.compare(store.path)
    last = max(store.acknowledged for store in stores) + 1
    lives, shapes = [], []
    for store in stores:
        store.start(last)
        store.finish()
        (partition,) = (await inspect_disk(store.path)).partitions
        assert (partition.last, partition.checkpoint) == (last, last)
        shapes.append(len(partition.segments))
        lives.append(await store.compare(store.path))
        assert partition.live == len(lives[-1]), "the checkpoint has another live set"
    assert all(live == lives[0] for live in lives), "live sets differ"
    assert all(store.ledger.values == stores[0].ledger.values for store in stores)
    return KvSoakReport(last, kills, copies, moves, max(shapes), len(lives[0]))


def seconds(text: str) -> float:
    try:
        return duration_s(text)
    except typer.BadParameter as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev soak kv", description=__doc__)
    parser.add_argument("--duration", type=seconds, default=600.0, help="for example 30s, 10m, 2h")
    parser.add_argument("--stores", type=int, default=3, help="how many processes")
    parser.add_argument("--seed", type=int, help="of the operations and of when to kill")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else Random().randrange(2**32)
    print(f"seed {seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="stratalog-soak-kv-") as folder:
        work = kv_soak(
            Path(folder),
            seed=seed,
            duration_s=given.duration,
            replicas=given.stores,
            shown=sys.stderr.isatty(),
        )
        try:
            report = asyncio.run(work)
        except KeyboardInterrupt:
            return 130
    print(
        f"{given.stores} stores, {report.operations:,} operations each, killed "
        f"{report.kills:,} times, copied {report.copies:,} times, moved {report.moves:,} times: "
        f"all have the same {report.live:,} values, in at most {report.segments} segments"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
