"""A run as a table for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from bench.results import Figure, Measurement, Ratio, Run, Spread

WIDTH_WITHOUT_TERMINAL = 150


def wide_console() -> Console:
    """A console as wide as the terminal; in a file, wide enough for a row of the table."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH_WITHOUT_TERMINAL)


def show(run: Run, console: Console) -> None:
    """Show every measurement with its target."""
    table = Table(
        title=f"{run.bench}{' (quick: for the harness, not for the figures)' if run.quick else ''}"
    )
    for heading in ("question", "what", "where", "against"):
        table.add_column(heading, overflow="fold")
    for heading in ("theirs", "ours", "ratio (quartiles)", "target", ""):
        table.add_column(heading, justify="right", overflow="fold")
    for measured in run.measurements:
        row = _row(measured)
        if row is not None:
            table.add_row(*row)
    console.print(table)


def one_line(measured: Measurement) -> str:
    """A measurement in one line, for progress."""
    row = _row(measured)
    return "" if row is None else "  ".join(part for part in row if part)


def _row(measured: Measurement) -> tuple[str, ...] | None:
    if isinstance(measured, Ratio):
        ratios = measured.ratios
        return (
            measured.question,
            measured.name,
            measured.place,
            measured.against,
            _amount(Spread.of(measured.baseline).median, measured.unit),
            _amount(Spread.of(measured.ours).median, measured.unit),
            f"{ratios.median:.2f} ({ratios.lower_quartile:.2f}–{ratios.upper_quartile:.2f})",
            _target(measured),
            _verdict(measured.passes),
        )
    if isinstance(measured, Figure):
        return (
            measured.question,
            measured.name,
            measured.place,
            "",
            "",
            _amount(measured.value, measured.unit),
            "",
            _target(measured),
            _verdict(measured.passes),
        )
    return None


def _amount(value: float, unit: str) -> str:
    return f"{_number(value)} {unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _target(measured: Ratio | Figure) -> str:
    if measured.target is None:
        return ""
    return f"{'≥' if measured.bound == 'at least' else '≤'} {_number(measured.target)}"


def _verdict(passes: bool | None) -> str:
    return {None: "", True: "[green]pass[/]", False: "[red]miss[/]"}[passes]
