"""`./dev soak frames`: mutated frames against a broker in memory, as many as you have time for.

One seed is one broker, in virtual time, with 20,000 frames on some 10,000 connections. A healthy
client beside them must be answered at once, all memory of requests must come back, and the logs
must hold whole batches and nothing else. Record batches are mutated as well, one for every five
frames, and must be refused, decoded, or found undecodable.

A failure names its seed. `./dev soak frames --seed S --frames 20000` plays it again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from random import Random

from broker.fuzz.doors import fuzz_batches
from broker.fuzz.fuzzing import Fuzzed, fuzz

FRAMES_PER_SEED = 20_000
FRAMES_PER_BATCH = 5
BAR_WIDTH = 40
LINE_EVERY_S = 10.0


class Progress:
    """A bar on a terminal, and a line now and then elsewhere."""

    def __init__(self, frames: int) -> None:
        self._frames = frames
        self._done = 0
        self._every_s = 0.2 if sys.stderr.isatty() else LINE_EVERY_S
        self._begun = self._shown = time.monotonic()

    def add(self, frames: int) -> None:
        self._done += frames
        now = time.monotonic()
        if now - self._shown >= self._every_s:
            self._shown = now
            self._show(now)

    def _show(self, now: float) -> None:
        share = min(1.0, self._done / self._frames)
        rate = self._done / (now - self._begun)
        text = f"{self._done:,} of {self._frames:,} frames, {rate:,.0f} a second"
        if sys.stderr.isatty():
            bar = "#" * round(share * BAR_WIDTH)
            sys.stderr.write(f"\r[{bar:-<{BAR_WIDTH}}] {share:4.0%}  {text} ")
        else:
            sys.stderr.write(f"{share:4.0%}  {text}\n")
        sys.stderr.flush()


def soak_frames(
    frames: int, seed: int, on_frames: Callable[[int], None] = lambda _: None
) -> tuple[Fuzzed, int, int, int]:
    """What became of the frames; how many batches were tried, taken and decoded."""
    found, tried, taken, decoded = Fuzzed(), 0, 0, 0
    while found.frames < frames:
        count = min(FRAMES_PER_SEED, frames - found.frames)
        found += fuzz(seed, count, on_frames)
        ones = fuzz_batches(seed, count // FRAMES_PER_BATCH)
        tried += count // FRAMES_PER_BATCH
        taken, decoded = taken + ones[0], decoded + ones[1]
        seed += 1
    return found, tried, taken, decoded


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev soak frames",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--frames", type=int, default=1_000_000, help="how many to send")
    parser.add_argument("--seed", type=int, help="the first seed; the others follow it")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else Random().randrange(2**32)
    print(f"seeds from {seed}", file=sys.stderr)
    try:
        found, tried, taken, decoded = soak_frames(given.frames, seed, Progress(given.frames).add)
    except KeyboardInterrupt:
        return 130
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(
        f"{found.frames:,} mutated frames on {found.connections:,} connections: {found.closed:,} "
        f"were closed, {found.answers:,} answers given, {found.appended:,} whole batches appended; "
        f"{found.healthy:,} records of a healthy client beside them were answered at once, and are "
        f"there; of {tried:,} mutated batches {taken:,} were taken and {decoded:,} of these decoded"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
