"""`soak`: write to a log for a while, look after it meanwhile, and prove every record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stratalog.cli import exits, output
from stratalog.cli.groups import option
from stratalog.cli.parameters import DURATION, FILE_TO_WRITE, Url
from stratalog.cli.reply import Reply
from stratalog.errors import Exists
from stratalog.store import open_store, redact

if TYPE_CHECKING:
    from rich.table import Table

    from stratalog.soak import Figures, SoakReport

LINE_EVERY_S = 5.0
DURATION_S = 60.0

Watch = Callable[["Figures"], None]


@dataclass(frozen=True, slots=True)
class Load:
    rate: float = option(
        "Records per second, about which the rate wanders.", default=200.0, metavar="N", min=0.001
    )
    duration: float | None = option("How long: 30s, 10m, 2h.", show_default="60s", **DURATION)
    writers: int = option("How many share the log.", default=3, metavar="N", min=1, max=256)
    force: bool = option(
        "Also write to a log that exists. It is not collected then.", default=False
    )
    history: Path | None = option("Write every operation, as JSON lines.", **FILE_TO_WRITE)

    @property
    def duration_s(self) -> float:
        return DURATION_S if self.duration is None else self.duration


def soak(url: Url, *, load: Load, reply: Reply) -> None:
    """Write and read a log for a while, and prove that every record maps one to one.

    Writers come, are killed and come again; collection, sweeps, pins and forks
    happen meanwhile. The log is created for it and stays there afterwards. The
    exit code is 13 if a promise was broken.

    Examples:
      stratalog soak soak-log --rate 1000 --duration 2m
      stratalog soak s3://bucket/soak --duration 1h --history soak.jsonl
    """
    latest: Figures | None = None

    async def work() -> SoakReport:
        from stratalog.soak import History, SoakOptions
        from stratalog.soak import soak as begin

        options = SoakOptions(
            rate=load.rate, duration_s=load.duration_s, writers=load.writers, force=load.force
        )
        with ExitStack() as stack:
            file = None if load.history is None else stack.enter_context(load.history.open("wb"))
            watch = stack.enter_context(watching(load.duration_s, shown=not reply.as_json))

            def note(figures: Figures) -> None:
                nonlocal latest
                latest = figures
                watch(figures)

            return await begin(url, options=options, history=History(file), on_progress=note)

    try:
        report = reply.run(work())
    except Exists as error:
        error.hint = "Choose another place, or write to this log too with --force."
        raise
    except KeyboardInterrupt:
        far = "before it began" if latest is None else f"after {_progress(latest, load.duration_s)}"
        _show_interrupted(url, far, reply)
        raise
    code = show(report, reply)
    if code != exits.OK:
        raise typer.Exit(code)


def show(report: SoakReport, reply: Reply) -> int:
    """Show the report. Gives the exit code that it means."""
    reply.result(report, lambda report: {**report.to_dict(), "url": redact(report.url)}, _draw)
    return exits.OK if report.proven else exits.CORRUPT


def _show_interrupted(url: str, far: str, reply: Reply) -> None:
    message = f"interrupted {far}; nothing was proven"
    hint = f"The log stays at {redact(open_store(url).url)}; `stratalog verify` looks at it."
    output.show_error("interrupted", message, hint, exits.INTERRUPTED, reply.as_json)


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


@dataclass(slots=True)
class _Lines:
    whole_s: float
    next_s: float = 0.0

    def __call__(self, figures: Figures) -> None:
        if figures.elapsed_s < self.next_s:
            return
        self.next_s = figures.elapsed_s + LINE_EVERY_S
        sys.stderr.write(f"{_progress(figures, self.whole_s)}\n")
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

    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right")
    for what, value in _rows(figures):
        style = "bold red" if what == "violations" and figures.violations else ""
        table.add_row(what, output.styled(value, style))
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
    what = "what was found"
    table = output.table("rule", what, title="Violations", no_wrap=("rule",), fold=(what,))
    for violation in report.violations:
        table.add_row(output.styled(violation.rule, "bold red"), redact(violation.detail))
    output.draw(table)
    output.say(f"{output.count(figures.violations, 'violation')}: see docs/guide/proof.md")
