"""Draw the rooms of the library, from the contracts that hold them.

    ./dev python scripts/draw_rooms.py

Each layer is a row, the highest on top, and may use what is below it. A package with layers of its
own shows them inside. What a room is for is the first sentence of its facade.
"""

from __future__ import annotations

import ast
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "rooms.svg"

WIDTH, GAP, PAD = 960, 8, 10
ROOM_HEIGHT, TITLE_HEIGHT, LINE_HEIGHT = 28, 24, 16
CHARACTER_WIDTH = 6.4
FONT = 'font-family="system-ui, sans-serif" font-size="13"'
LEFT_OUT = {"__main__", "_version", "errors", "invariants", "renamed"}
"""Modules that nobody looks for in a picture."""

STYLE = """
    .paper { fill: #ffffff; } .ink { fill: #1d2530; }
    .package { fill: #f3f5f8; stroke: #c9d1da; } .room { fill: #ffffff; stroke: #8a97a6; }
    .name { font-weight: 600; } .soft { fill: #5b6775; font-size: 12px; }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117; } .ink { fill: #e6edf3; }
      .soft { fill: #9aa6b2; }
      .package { fill: #151b23; stroke: #37414d; } .room { fill: #0d1117; stroke: #6c7885; }
    }
"""

Layers = list[list[str]]


class Box(NamedTuple):
    """Where something is drawn."""

    x: float
    y: float
    width: float
    height: float


def contracts() -> dict[str, Layers]:
    """The layers inside of each package, the highest first, by the name of the package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = settings["tool"]["importlinter"]["contracts"]
    return {
        each["containers"][0]: [
            [name for name in layer.split(" | ") if name not in LEFT_OUT]
            for layer in each["layers"]
        ]
        for each in found
        if each["type"] == "layers"
    }


def is_shown(package: str, name: str) -> bool:
    """Whether a layer is a folder: inside of a package, modules are not drawn."""
    return (ROOT / "src" / package.replace(".", "/") / name).is_dir()


def rooms_of(package: str, layers: dict[str, Layers]) -> Layers:
    rows = [[name for name in row if is_shown(package, name)] for row in layers.get(package, [])]
    return [row for row in rows if row]


def purpose_of(name: str) -> str:
    """The first sentence of a docstring."""
    path = ROOT / "src" / name.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    documented = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    sentence = documented.partition("\n\n")[0].replace("\n", " ").partition(". ")[0]
    return sentence.rstrip(".").replace("``", "")


def shortened(words: str, width: float) -> str:
    """As much of a sentence as fits, in whole parts."""
    while len(words) * CHARACTER_WIDTH > width:
        words = words[: max(0, *(words.rfind(mark) for mark in (": ", ", ", "; ", " and ")))]
    return words


def lines_of(words: str, width: float) -> list[str]:
    return textwrap.wrap(words, max(8, int(width / CHARACTER_WIDTH)))


def height_of(package: str, layers: dict[str, Layers], width: float) -> float:
    rooms = len(rooms_of(package, layers))
    lines = 0 if rooms else len(lines_of(purpose_of(package), width - 2 * PAD))
    return TITLE_HEIGHT + PAD + rooms * (ROOM_HEIGHT + GAP) + lines * LINE_HEIGHT


def drawn_package(package: str, layers: dict[str, Layers], box: Box) -> Iterator[str]:
    yield rectangle("package", box)
    yield text("ink name", box.x + PAD, box.y + 18, package.rpartition(".")[2])
    y = box.y + TITLE_HEIGHT
    rows = rooms_of(package, layers)
    if rows:
        name_width = len(package.rpartition(".")[2]) * 9 + 2 * PAD
        words = shortened(purpose_of(package), box.width - name_width - PAD)
        yield text("soft", box.x + name_width, box.y + 18, words)
    else:
        for place, line in enumerate(lines_of(purpose_of(package), box.width - 2 * PAD)):
            yield text("soft", box.x + PAD, y + 14 + place * LINE_HEIGHT, line)
    for row in rows:
        width = (box.width - 2 * PAD - (len(row) - 1) * GAP) / len(row)
        for place, name in enumerate(row):
            at = Box(box.x + PAD + place * (width + GAP), y, width, ROOM_HEIGHT)
            yield from drawn_room(f"{package}.{name}", at)
        y += ROOM_HEIGHT + GAP


def drawn_room(room: str, box: Box) -> Iterator[str]:
    """Its name, and what it is for where there is space."""
    name = room.rpartition(".")[2]
    yield rectangle("room", box)
    yield text("ink name", box.x + PAD, box.y + 19, name)
    beside = box.x + PAD + max(90, len(name) * 8 + 16)
    yield text("soft", beside, box.y + 19, shortened(purpose_of(room), box.x + box.width - beside))


def rectangle(kind: str, box: Box) -> str:
    size = f'width="{box.width:.0f}" height="{box.height:.0f}"'
    return f'<rect class="{kind}" x="{box.x:.0f}" y="{box.y:.0f}" {size} rx="6"/>'


def text(kind: str, x: float, y: float, words: str, more: str = "") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}"{more}>{escape(words)}</text>'


def picture() -> str:
    """The whole picture as SVG."""
    layers = contracts()
    shapes: list[str] = []
    y = float(PAD)
    for row in filter(None, layers["stratalog"]):
        packages = [f"stratalog.{name}" for name in row]
        # A package with rooms gets the space of three without.
        shares = [3 if rooms_of(package, layers) else 1 for package in packages]
        unit = (WIDTH - 2 * PAD - (len(row) - 1) * GAP) / sum(shares)
        height = max(
            height_of(package, layers, unit * share)
            for package, share in zip(packages, shares, strict=True)
        )
        x = float(PAD)
        for package, share in zip(packages, shares, strict=True):
            shapes += drawn_package(package, layers, Box(x, y, unit * share, height))
            x += unit * share + GAP
        y += height + GAP
    size = f"0 0 {WIDTH} {y + PAD - GAP:.0f}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img" {FONT}>',
            "<title>The rooms of Stratalog: each row may use the rows below it</title>",
            f"<style>{STYLE}</style>",
            rectangle("paper", Box(0, 0, WIDTH, y + PAD - GAP)),
            *shapes,
            "</svg>\n",
        ]
    )


def main() -> int:
    PICTURE.write_text(picture(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
