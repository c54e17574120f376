"""``python -m bench NAME``: run a bench, store its results, draw charts, and show a table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from bench import ROOT
from bench.broker import questions as broker_bench
from bench.charts import draw
from bench.collection.questions import COLLECTION
from bench.compaction.questions import COMPACTION
from bench.forks.questions import FORKS
from bench.hashing import make_kernel
from bench.object_log.questions import OBJECT_LOG
from bench.pipeline.questions import PIPELINE
from bench.places import Place, directory_place, seaweed_place
from bench.report import one_line, show, wide_console
from bench.results import Measurement, Run
from bench.segments.questions import SEGMENTS_BENCH
from bench.session import Bench, Session

Record = Callable[[Measurement], None]

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)

Quick = Annotated[bool, typer.Option(help="Less of everything: tries the harness.")]
Output = Annotated[Path | None, typer.Option(help="Put results and charts there instead.")]


@app.callback()
def benches() -> None:
    """Measure. Results go to bench/results, charts to docs/charts; see each bench for more.

    Quick and partial runs go to build/bench, so that they do not replace the results of a full one.
    """


@app.command("object-log")
def object_log(
    quick: Quick = False,
    only: Annotated[list[str] | None, typer.Option(help=OBJECT_LOG.help_of_only())] = None,
    output: Output = None,
) -> None:
    """The object log against the unavoidable work."""
    _run(OBJECT_LOG, quick, only, output)


@app.command("collection")
def collection(
    quick: Quick = False,
    only: Annotated[list[str] | None, typer.Option(help=COLLECTION.help_of_only())] = None,
    output: Output = None,
) -> None:
    """Collection and scrubbing: their cost, and their cost for concurrent appends."""
    _run(COLLECTION, quick, only, output)


@app.command("compaction")
def compaction(
    quick: Quick = False,
    only: Annotated[list[str] | None, typer.Option(help=COMPACTION.help_of_only())] = None,
    output: Output = None,
) -> None:
    """Compaction: sets of offsets, and dropping dead records."""
    _run(COMPACTION, quick, only, output)


@app.command("forks")
def forks(
    quick: Quick = False,
    only: Annotated[list[str] | None, typer.Option(help=FORKS.help_of_only())] = None,
    output: Output = None,
) -> None:
    """Forks and pins: the cost of making and reading a fork, and of pins for a writer."""
    _run(FORKS, quick, only, output)


@app.command("pipeline")
def pipeline(
    quick: Quick = False,
    only: Annotated[list[str] | None, typer.Option(help=PIPELINE.help_of_only())] = None,
    output: Output = None,
) -> None:
    """The pipeline on Spark: reading, writing, merging and hashing."""
    _run(PIPELINE, quick, only, output)


@app.command("segments")
def segments(
    quick: Quick = False,
    only: Annotated[list[str] | None, typer.Option(help=SEGMENTS_BENCH.help_of_only())] = None,
    output: Output = None,
) -> None:
    """The node's disk against plain files: appending, reading, compacting, opening."""
    _run(SEGMENTS_BENCH, quick, only, output)


@app.command("broker")
def broker(
    kafka: Annotated[str | None, typer.Option(help="HOST:PORT of a running Kafka.")] = None,
    nats: Annotated[str | None, typer.Option(help="HOST:PORT of a running NATS server.")] = None,
    quick: Quick = False,
    only: Annotated[
        list[str] | None, typer.Option(help=f"Only this: {', '.join(broker_bench.QUESTIONS)}.")
    ] = None,
    output: Output = None,
) -> None:
    """The broker against Kafka, NATS and a C loop. Peers must be running on this machine."""
    names = _chosen(only, list(broker_bench.QUESTIONS))
    config = broker_bench.CONFIG | {"kafka": kafka or "none", "nats": nats or "none"}

    def measure(record: Record) -> None:
        broker_bench.answer(names, kafka=kafka, nats=nats, quick=quick, record=record)

    _keep("broker", config, quick, bool(only), output, measure)


def _run(bench: Bench, quick: bool, only: Sequence[str] | None, output: Path | None) -> None:
    names = _chosen(only, list(bench.questions))
    make_kernel()

    def measure(record: Record) -> None:
        with ExitStack() as stack:
            places: list[Place] = [
                stack.enter_context(directory_place()),
                stack.enter_context(seaweed_place()),
            ]
            asyncio.run(_answer(bench, Session(places, quick, record), names))

    _keep(bench.name, bench.config, quick, bool(only), output, measure)


def _chosen(only: Sequence[str] | None, known: Sequence[str]) -> Sequence[str]:
    unknown = sorted(set(only or ()) - set(known))
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(known)}")
    return only or known


def _keep(
    name: str,
    config: dict[str, str | int | float],
    quick: bool,
    partial: bool,
    output: Path | None,
    measure: Callable[[Record], None],
) -> None:
    """Measure, and keep what was measured as data, charts and a table."""
    if output is None and (quick or partial):
        output = ROOT / "build" / "bench"
    console = wide_console()
    run = Run.begin(name, config, quick=quick)

    def record(measured: Measurement) -> None:
        run.measurements.append(measured)
        line = one_line(measured)
        if line:
            console.print(line, highlight=False, soft_wrap=True)

    started_s = time.perf_counter()
    measure(record)
    run.took_s = time.perf_counter() - started_s
    path = run.save(output or ROOT / "bench" / "results")
    charts = draw(Run.load(path), output or ROOT / "docs" / "charts")
    show(run, console)
    console.print(f"{run.took_s:.0f} s. Data: {path}", *charts, sep="\n", soft_wrap=True)


async def _answer(bench: Bench, session: Session, names: Sequence[str]) -> None:
    for name in names:
        await bench.questions[name](session)


if __name__ == "__main__":
    app(prog_name="bench")
