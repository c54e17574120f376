"""``python -m bench NAME``: run a bench, store what it found, draw it, and show a table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from bench import ROOT
from bench.charts import draw
from bench.object_log.questions import CONFIG, QUESTIONS
from bench.places import Place, directory_place, seaweed_place
from bench.report import one_line, show, wide_console
from bench.results import Measurement, Run
from bench.session import Session

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)


@app.callback()
def benches() -> None:
    """Measure. Results go to bench/results, charts to docs/charts; see each bench for more."""


@app.command("object-log")
def object_log(
    quick: Annotated[bool, typer.Option(help="Less of everything: tries the harness.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help=f"Only this question: {', '.join(QUESTIONS)}.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Put results and charts there instead.")
    ] = None,
) -> None:
    """The object log against the unavoidable work.

    Quick and partial runs go to build/bench, so that they do not replace the results of a full one.
    """
    unknown = sorted(set(only or ()) - QUESTIONS.keys())
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(QUESTIONS)}")
    if output is None and (quick or only):
        output = ROOT / "build" / "bench"
    console = wide_console()
    run = Run.begin("object-log", CONFIG, quick=quick)

    def record(measured: Measurement) -> None:
        run.measurements.append(measured)
        line = one_line(measured)
        if line:
            console.print(line, highlight=False, soft_wrap=True)

    started_s = time.perf_counter()
    with ExitStack() as stack:
        places: list[Place] = [
            stack.enter_context(directory_place()),
            stack.enter_context(seaweed_place()),
        ]
        asyncio.run(_answer(Session(places, quick, record), only or list(QUESTIONS)))
    run.took_s = time.perf_counter() - started_s
    path = run.save(output or ROOT / "bench" / "results")
    charts = draw(Run.load(path), output or ROOT / "docs" / "charts")
    show(run, console)
    console.print(f"{run.took_s:.0f} s. Data: {path}", *charts, sep="\n", soft_wrap=True)


async def _answer(session: Session, names: Sequence[str]) -> None:
    for name in names:
        await QUESTIONS[name](session)


if __name__ == "__main__":
    app(prog_name="bench")
