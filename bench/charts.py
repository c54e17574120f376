"""Charts of a stored run, from its data alone.

Bars start at zero and carry their spread (the whiskers are quartiles), the line of their target and
their value. A series becomes a curve, in one chart for each question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from bench.results import Figure, Ratio, Run, Series, Spread

OURS, THEIRS, TARGET, WHISKER = "#3b6ea8", "#b9c2cc", "#c23b22", "#222222"
WIDTH_INCHES = 9.0
ROW_INCHES = 0.42
FRAME_INCHES = 1.5
CPU_UNIT = "s/GB"

CURVE_ROWS = 8
CURVES = {
    "scale": "Largest root put as the log grows",
    "prefix": "Objects that a collection touches, by what it drops",
    "log-size": "Objects that a collection touches, by how long the log is",
    "forking": "Requests that a fork takes, by how long the log is",
}

Painter = Callable[[Axes], None]


def draw(run: Run, folder: Path) -> list[Path]:
    """Draw every chart for which the run has data; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    ratios = [each for each in run.measurements if isinstance(each, Ratio)]
    at_least = [each for each in ratios if each.bound == "at least" and (each.target or 0) < 1]
    many_times = [each for each in ratios if each.bound == "at least" and (each.target or 0) >= 1]
    costs = [each for each in ratios if each.unit == CPU_UNIT]
    at_most = [each for each in ratios if each.bound == "at most" and each.unit != CPU_UNIT]
    rates = [each for each in ratios if each.unit == "MB/s"]
    shares = [
        each
        for each in run.measurements
        if isinstance(each, Figure) and each.question == "contention" and each.unit.endswith("/s")
    ]
    series = [each for each in run.measurements if isinstance(each, Series)]
    charts: list[tuple[str, str, int, Painter]] = [
        ("throughput-ratios", "Throughput: share of the baseline's (higher is better)",
         len(at_least), lambda axes: _ratio_bars(axes, at_least)),
        ("latency-ratios", "Latency: multiple of the baseline's (lower is better)",
         len(at_most), lambda axes: _ratio_bars(axes, at_most)),
        ("speed-ups", "Throughput: multiple of the baseline's (higher is better)",
         len(many_times), lambda axes: _ratio_bars(axes, many_times)),
        ("costs", "CPU time of the broker: multiple of the baseline's (lower is better)",
         len(costs), lambda axes: _ratio_bars(axes, costs)),
        ("throughput", "Throughput in MB/s (grey: the baseline)",
         2 * len(rates), lambda axes: _rate_bars(axes, rates)),
        ("contention", "Two saturated writers and a changer of the past, all at once",
         len(shares), lambda axes: _share_bars(axes, shares)),
    ]  # fmt: skip
    for question in dict.fromkeys(each.question for each in series):
        curves = [each for each in series if each.question == question]
        title = CURVES.get(question, question)
        painter = partial(_curve, series=curves[0])
        if len(curves) > 1:
            painter = partial(_curves, series=curves)
        charts.append((question, title, CURVE_ROWS, painter))
    return [
        _paint(folder / f"{run.bench}-{name}.svg", title, rows, run, painter)
        for name, title, rows, painter in charts
        if rows
    ]


def _paint(path: Path, title: str, rows: int, run: Run, painter: Painter) -> Path:
    drawing = Drawing(
        figsize=(WIDTH_INCHES, FRAME_INCHES + ROW_INCHES * rows), layout="constrained"
    )
    axes = drawing.add_subplot()
    painter(axes)
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    drawing.supxlabel(_origin(run), fontsize=7, color="#666666")
    with mpl.rc_context({"svg.hashsalt": run.began, "svg.fonttype": "none"}):
        drawing.savefig(path, metadata={"Date": None})
    return path


def _origin(run: Run) -> str:
    quick = "quick run, not for figures · " if run.quick else ""
    changes = "+" if run.uncommitted_changes else ""
    machine = f"{run.machine['cores']} cores, {run.machine['processor']}"
    return f"{quick}{run.began[:10]} · commit {run.commit[:10]}{changes} · {machine}"


def _ratio_bars(axes: Axes, rows: Sequence[Ratio]) -> None:
    spreads = [row.ratios for row in rows]
    _bars(axes, [f"{row.name}\n{row.place}, against {row.against}" for row in rows], spreads)
    for place, (row, spread) in enumerate(zip(rows, spreads, strict=True)):
        mine = Spread.of(row.ours).median
        text = f"{spread.median:.2f}  ({_figure(mine)} {row.unit})"
        axes.text(spread.upper_quartile, place, f"  {text}", va="center", fontsize=8)
        if row.target is not None:
            axes.vlines(row.target, place - 0.4, place + 0.4, color=TARGET, linewidth=2)
    _leave_room(axes, max(spread.upper_quartile for spread in spreads))
    axes.set_xlabel("ratio; red: target; whiskers: quartiles", fontsize=8)


def _rate_bars(axes: Axes, rows: Sequence[Ratio]) -> None:
    labels: list[str] = []
    spreads: list[Spread] = []
    for row in rows:
        labels += [f"{row.name}, {row.place}", row.against]
        spreads += [Spread.of(row.ours), Spread.of(row.baseline)]
    _bars(axes, labels, spreads, [OURS, THEIRS] * len(rows))
    for place, spread in enumerate(spreads):
        axes.text(
            spread.upper_quartile, place, f"  {_figure(spread.median)}", va="center", fontsize=8
        )
    _leave_room(axes, max(spread.upper_quartile for spread in spreads))
    axes.set_xlabel("MB/s", fontsize=8)


def _figure(value: float) -> str:
    """Three figures, and no powers of ten."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _share_bars(axes: Axes, rows: Sequence[Figure]) -> None:
    _bars(
        axes,
        [f"{row.name}, {row.place}" for row in rows],
        [Spread.of([row.value]) for row in rows],
    )
    for place, row in enumerate(rows):
        axes.text(row.value, place, f"  {row.value:,.4g} {row.unit}", va="center", fontsize=8)
    axes.set_xscale("symlog")
    _leave_room(axes, 10 * max(row.value for row in rows))
    axes.set_xlabel("per second, logarithmic", fontsize=8)


def _bars(
    axes: Axes, labels: Sequence[str], spreads: Sequence[Spread], colours: Sequence[str] = (OURS,)
) -> None:
    medians = [spread.median for spread in spreads]
    whiskers = [
        [spread.median - spread.lower_quartile for spread in spreads],
        [spread.upper_quartile - spread.median for spread in spreads],
    ]
    axes.barh(
        range(len(labels)), medians, xerr=whiskers, color=list(colours), ecolor=WHISKER, capsize=2
    )
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()


def _leave_room(axes: Axes, widest: float) -> None:
    """Leave room for the label of the longest bar."""
    axes.set_xlim(0, widest * 1.35)


def _curves(axes: Axes, series: Sequence[Series]) -> None:
    """Several curves of counts, each over few points and many powers of ten."""
    for each, mark in zip(series, cycle("osD^vPX"), strict=False):
        counts = " → ".join(f"{count:,.0f}" for count in each.y)
        axes.plot(
            each.x, each.y, marker=mark, linewidth=1, alpha=0.7, label=f"{each.name}  {counts}"
        )
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(series[0].x, [f"{x:,.0f}" for x in series[0].x])
    axes.set_yscale("symlog")
    axes.set_ylim(0, 2 * max(max(each.y) for each in series))
    axes.set_xlabel(series[0].x_unit, fontsize=8)
    axes.set_ylabel(series[0].y_unit, fontsize=8)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)


def _curve(axes: Axes, series: Series) -> None:
    axes.plot(series.x, series.y, color=OURS, linewidth=1)
    if series.limit is not None:
        axes.axhline(series.limit, color=TARGET, linewidth=1.5)
        axes.text(0, series.limit, f" limit {series.limit:,.0f}", va="bottom", fontsize=8)
    axes.set_ylim(0, 1.15 * max([*series.y, series.limit or 0]))
    axes.set_xlabel(series.x_unit, fontsize=8)
    axes.set_ylabel(series.y_unit, fontsize=8)
