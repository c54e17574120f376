"""Bars in SVG, drawn by hand: they start at zero, and carry their axis, values and description.

Colours come from the page (``--one``, ``--two``, ``currentColor``), so a chart is readable wherever
the page is. Everything that is written passes through ``escape``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 720
LABEL_WIDTH = 190
VALUE_WIDTH = 96
ROW_HEIGHT = 26
BAR_HEIGHT = 16
AXIS_HEIGHT = 44
COLUMNS_HEIGHT = 220
LEFT = 64
TICKS = 4

Show = Callable[[float], str]
"""A number as people read it."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: what it is of, how long, and which of the two colours it has."""

    label: str
    value: float
    series: int = 0


def bars(title: str, axis: str, rows: Sequence[Bar], show: Show, *, binary: bool = False) -> str:
    """Bars from left to right, one below the other, each with its value.

    ``binary`` ends the axis at a power of two, as befits bytes.
    """
    longest = max((row.value for row in rows), default=0)
    top = next_power_of_two(longest) if binary else nice_top(longest)
    room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
    height = len(rows) * ROW_HEIGHT + AXIS_HEIGHT
    parts = []
    for tick in _ticks(top):
        x = LABEL_WIDTH + room * tick / top
        parts.append(_line(x, 0, x, len(rows) * ROW_HEIGHT + 4))
        parts.append(_text(x, len(rows) * ROW_HEIGHT + 18, show(tick), "middle", "tick"))
    for number, row in enumerate(rows):
        y = number * ROW_HEIGHT + (ROW_HEIGHT - BAR_HEIGHT) / 2
        length = room * row.value / top
        parts.append(_rect(LABEL_WIDTH, y, length, BAR_HEIGHT, row.series))
        parts.append(_text(LABEL_WIDTH - 8, y + 12, row.label, "end"))
        parts.append(_text(LABEL_WIDTH + length + 6, y + 12, show(row.value), "start"))
    parts.append(_text(LABEL_WIDTH + room / 2, height - 6, axis, "middle", "axis"))
    said = "; ".join(f"{row.label}: {show(row.value)}" for row in rows)
    return _svg(title, said, height, parts)


def columns(
    title: str,
    axes: tuple[str, str],
    labels: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    show: Show,
) -> str:
    """Groups of upright bars, one group a label and one bar a series. ``axes``: across, up."""
    top = nice_top(max((value for _, values in series for value in values), default=0))
    room, height = WIDTH - LEFT - 8, COLUMNS_HEIGHT + AXIS_HEIGHT + 24
    base = COLUMNS_HEIGHT + 12
    group = room / max(1, len(labels))
    width = min(28.0, group * 0.8 / max(1, len(series)))
    parts = []
    for tick in _ticks(top):
        y = base - COLUMNS_HEIGHT * tick / top
        parts.append(_line(LEFT, y, WIDTH - 8, y))
        parts.append(_text(LEFT - 6, y + 4, show(tick), "end", "tick"))
    for place, label in enumerate(labels):
        middle = LEFT + group * (place + 0.5)
        for number, (_, values) in enumerate(series):
            tall = COLUMNS_HEIGHT * values[place] / top
            x = middle + (number - len(series) / 2) * width
            parts.append(_rect(x, base - tall, width - 1, tall, number))
        parts.append(_text(middle, base + 16, label, "middle", "tick"))
    parts.append(_text(LEFT + room / 2, height - 6, axes[0], "middle", "axis"))
    turned = f'transform="rotate(-90 14 {base - COLUMNS_HEIGHT / 2:.0f})"'
    parts.append(_text(14, base - COLUMNS_HEIGHT / 2, axes[1], "middle", "axis", turned))
    said = "; ".join(
        f"{label}: " + ", ".join(f"{name} {show(values[place])}" for name, values in series)
        for place, label in enumerate(labels)
    )
    return _svg(title, said, height, parts)


def legend(names: Sequence[str]) -> str:
    keys = (
        f'<span class="key"><i class="s{number}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )
    return f'<p class="legend">{" ".join(keys)}</p>'


def nice_top(value: float) -> float:
    """The end of an axis: the next round number that a quarter of is still easy to read."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value)


def next_power_of_two(value: float) -> float:
    """The same for bytes."""
    return 2.0 ** max(2, math.ceil(math.log2(value))) if value > 0 else 4.0


def _ticks(top: float) -> list[float]:
    return [top * number / TICKS for number in range(TICKS + 1)]


def _svg(title: str, said: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {height:.0f}" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(title)}</title><desc>{escape(said)}</desc>{''.join(parts)}</svg>"
    )


def _rect(x: float, y: float, width: float, height: float, series: int) -> str:
    size = f'width="{max(0.0, width):.1f}" height="{max(0.0, height):.1f}"'
    return f'<rect class="s{series}" x="{x:.1f}" y="{y:.1f}" {size}/>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str, kind: str = "label", more: str = "") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>'
        f"{escape(text)}</text>"
    )
