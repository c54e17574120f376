"""`./dev sim --seeds N --seed S`: run scenarios; `--soak`: new seeds until stopped."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import traceback

from rich.console import Console

from simulation import branching, compacting, herding, keeping, node_disk, scenario, sinking

SCENARIOS = {
    "writing": scenario.run_seed,
    "keeping": keeping.run_seed,
    "branching": branching.run_seed,
    "compacting": compacting.run_seed,
    "herding": herding.run_seed,
    "sinking": sinking.run_seed,
    "disk": node_disk.run_seed,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to run")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--scenario", choices=[*SCENARIOS, "all"], default="all", help="who lives on the log"
    )
    parser.add_argument("--soak", action="store_true", help="go on until stopped")
    parser.add_argument("--minutes", type=float, default=None, help="stop a soak after so long")
    options = parser.parse_args()
    chosen = [*SCENARIOS] if options.scenario == "all" else [options.scenario]
    console = Console(stderr=True)
    started = time.monotonic()
    seeds = (
        itertools.count(options.seed)
        if options.soak
        else range(options.seed, options.seed + options.seeds)
    )
    done = 0
    try:
        with console.status("simulating") as status:
            for seed in seeds:
                if options.minutes and time.monotonic() - started > 60 * options.minutes:
                    break
                for name in chosen:
                    try:
                        digest = SCENARIOS[name](seed)
                    except Exception:
                        again = f"./dev sim --scenario {name} --seeds 1 --seed {seed}"
                        console.print(f"{name}, seed {seed} failed; again with: {again}")
                        traceback.print_exc()
                        return 1
                    if options.seeds == 1 and not options.soak:
                        print(f"{name}, seed {seed}: trace {digest}")
                done += 1
                rate = done / (time.monotonic() - started)
                status.update(f"{done} seeds, {rate:.0f} a second")
    except KeyboardInterrupt:
        pass
    print(f"{done} seeds of {', '.join(chosen)} passed in {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
