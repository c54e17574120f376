"""`soak`: write to a log for a while, look after it meanwhile, and prove every record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import exits, output
from stratalog.cli.parameters import AsJson, Url, Verbose, duration_s, in_a_directory, run
from stratalog.errors import Corrupt, Exists
from stratalog.store import open_store, redact

if TYPE_CHECKING:
    from rich.table import Table

    from stratalog.soak import Figures, SoakReport

LINE_EVERY_S = 5.0
DURATION_S = 60.0

Watch = Callable[["Figures"], None]


def soak(
    url: Url,
    rate: Annotated[
        float,
        typer.Option(
            metavar="N", min=0.001, help="Records per second, about which the rate wanders."
        ),
    ] = 200.0,
    duration: Annotated[
        float | None,
        typer.Option(
            parser=duration_s,
            metavar="DURATION",
            help="How long: 30s, 10m, 2h.",
            show_default="60s",
        ),
    ] = None,
    writers: Annotated[
        int, typer.Option(metavar="N", min=1, max=256, help="How many share the log.")
    ] = 3,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also write to a log that exists. It is not collected then."),
    ] = False,
    history: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            callback=in_a_directory,
            metavar="FILE",
            help="Write every operation, as JSON lines.",
        ),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Write and read a log for a while, and prove that every record maps one to one.

    Writers come, are killed and come again; collection, sweeps, pins and forks
    happen meanwhile. The log is created for it and stays there afterwards. The
    exit code is 13 if a promise was broken.

    Examples:
      stratalog soak soak-log --rate 1000 --duration 2m
      stratalog soak s3://bucket/soak --duration 1h --history soak.jsonl
    """
    from stratalog.soak import History, SoakOptions
    from stratalog.soak import soak as begin

    whole_s = DURATION_S if duration is None else duration
    options = SoakOptions(rate=rate, duration_s=whole_s, writers=writers, force=force)

    latest: Figures | None = None

    async def work() -> SoakReport:
        with ExitStack() as stack:
            file = None if history is None else stack.enter_context(history.open("wb"))
            watch = stack.enter_context(watching(whole_s, shown=not as_json))

            def note(figures: Figures) -> None:
                nonlocal latest
                latest = figures
                watch(figures)

            return await begin(url, options=options, history=History(file), on_progress=note)

    try:
        report = run(work(), verbose=verbose)
    except Exists as error:
        error.hint = "Choose another place, or write to this log too with --force."
        raise
    except KeyboardInterrupt:
        _tell_interrupted(redact(open_store(url).url), latest, whole_s, as_json=as_json)
        raise
    code = tell(report, as_json=as_json)
    if code != exits.OK:
        raise typer.Exit(code)


def tell(report: SoakReport, *, as_json: bool) -> int:
    """Show the report. Gives the exit code that it means."""
    if as_json:
        output.write_json({**report.to_dict(), "url": redact(report.url)})
    else:
        _draw(report)
    return exits.OK if report.proven else exits.exit_code(Corrupt(""))


def _tell_interrupted(place: str, latest: Figures | None, whole_s: float, *, as_json: bool) -> None:
    far = "before it began" if latest is None else f"after {_progress(latest, whole_s)}"
    message = f"interrupted {far}; nothing was proven"
    hint = f"The log stays at {place}; `stratalog verify` looks at it."
    output.show_error("interrupted", message, hint, exits.INTERRUPTED, as_json)


def _progress(figures: Figures, whole_s: float) -> str:
    """How far it is. The time is over before all that was written is read."""
    return (
        f"{min(figures.elapsed_s, whole_s):,.0f} of {whole_s:,.0f} s: "
        f"{figures.rate:,.0f} records/s, {figures.acknowledged:,} acknowledged, "
        f"{figures.read:,} read, {figures.unknown:,} unknown, lag {figures.lag:,}, "
        f"{output.count(figures.violations, 'violation')}"
    )


@contextmanager
def watching(whole_s: float, *, shown: bool) -> Iterator[Watch]:
    """A table that changes on a terminal, a line now and then elsewhere; on standard error."""
    if not shown:
        yield lambda _: None
        return
    if not sys.stderr.isatty():
        yield _Lines(whole_s)
        return
    from rich.live import Live

    screen = output.console(stderr=True)
    with Live(console=screen, transient=True, auto_refresh=False) as live:
        yield lambda figures: live.update(
            _table(figures, f"soaking, {min(figures.elapsed_s, whole_s):,.0f} of {whole_s:,.0f} s"),
            refresh=True,
        )


class _Lines:
    """Progress for a log file."""

    def __init__(self, whole_s: float) -> None:
        self._whole_s = whole_s
        self._next_s = 0.0

    def __call__(self, figures: Figures) -> None:
        if figures.elapsed_s < self._next_s:
            return
        self._next_s = figures.elapsed_s + LINE_EVERY_S
        sys.stderr.write(f"{_progress(figures, self._whole_s)}\n")
        sys.stderr.flush()


def _rows(figures: Figures) -> Iterator[tuple[str, str]]:
    timing = figures.appends
    yield "rate", f"{figures.rate:,.0f} records/s"
    yield "records written", f"{figures.called:,}"
    yield "acknowledged", f"{figures.acknowledged:,}"
    yield "unknown", f"{figures.unknown:,}, of which {figures.landed:,} landed"
    yield "failed", f"{figures.failed:,}"
    yield "read", f"{figures.read:,}"
    yield "lag", f"{figures.lag:,} records"
    yield "appends", f"p50 {1000 * timing.p50_s:,.1f} ms, p99 {1000 * timing.p99_s:,.1f} ms"
    yield "writers", f"{figures.opened:,} opened, {figures.killed:,} killed"
    yield "collections", f"{figures.collections:,}, {figures.collected:,} records"
    yield "sweeps", f"{figures.sweeps:,}, {figures.swept:,} objects"
    yield "pins", f"{figures.pins:,}"
    yield "forks", f"{figures.forks:,}"
    yield "side reads", f"{figures.side_reads:,}"
    yield "refused, troubles", f"{figures.refused:,}, {figures.troubles:,}"
    yield "violations", f"{figures.violations:,}"


def _table(figures: Figures, title: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right")
    for what, value in _rows(figures):
        style = "bold red" if what == "violations" and figures.violations else ""
        table.add_row(what, Text(value, style))
    return table


def _draw(report: SoakReport) -> None:
    figures = report.figures
    output.say(redact(report.url))
    output.draw(_table(figures, f"soaked for {figures.elapsed_s:,.0f} s"))
    if report.proven:
        output.say(
            f"proven: {output.count(figures.acknowledged, 'acknowledged record')} and "
            f"{figures.landed:,} of {figures.unknown:,} unknown ones were read once each, in order"
        )
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Violations", title_justify="left")
    table.add_column("rule", no_wrap=True)
    table.add_column("what was found", overflow="fold")
    for violation in report.violations:
        table.add_row(Text(violation.rule, "bold red"), redact(violation.detail))
    output.draw(table)
    output.say(f"{output.count(figures.violations, 'violation')}: see docs/guide/proof.md")
