"""`./dev sim --seeds N --seed S`: run scenarios; `--soak`: new seeds until stopped.

`--plants`: which seed finds each bug that was put in on purpose.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
import traceback

from rich.console import Console

from simulation import (
    branching,
    compacting,
    damaging,
    herding,
    keeping,
    node_disk,
    scenario,
    serving,
    sinking,
)
from simulation.planting import DeadPlant, Unnoticed
from simulation.plants import BEDS

SCENARIOS = {
    "writing": scenario.run_seed,
    "keeping": keeping.run_seed,
    "branching": branching.run_seed,
    "compacting": compacting.run_seed,
    "damaging": damaging.run_seed,
    "herding": herding.run_seed,
    "sinking": sinking.run_seed,
    "disk": node_disk.run_seed,
    "serving": serving.run_seed,
}

PLANT_LINE = "{scenario:<12}{plant:<50}{seed!s:>5}  {by}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to run")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--scenario", choices=[*SCENARIOS, "all"], default="all", help="who lives on the log"
    )
    parser.add_argument("--soak", action="store_true", help="go on until stopped")
    parser.add_argument("--minutes", type=float, default=None, help="stop a soak after so long")
    parser.add_argument(
        "--plants", action="store_true", help="which seed finds each bug that is put in on purpose"
    )
    parser.add_argument("--json", action="store_true", help="the plants as one object a line")
    options = parser.parse_args()
    if options.plants:
        return show_plants(options.scenario, as_json=options.json)
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


def show_plants(scenario: str, *, as_json: bool) -> int:
    """A line for each plant: its scenario, the seed that finds it, and by which error."""
    missed = 0
    for bed in BEDS if scenario == "all" else [bed for bed in BEDS if bed.scenario == scenario]:
        for plant in bed.plants:
            facts: dict[str, object] = {"scenario": bed.scenario, "plant": plant.__name__}
            try:
                facts |= bed.found(plant)._asdict()
            except (DeadPlant, Unnoticed) as error:
                missed += 1
                facts |= {"seed": None, "by": str(error)}
            print(json.dumps(facts) if as_json else PLANT_LINE.format(**facts), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
