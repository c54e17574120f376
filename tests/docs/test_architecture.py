"""What the pages say of the code's own files is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.markdown_files import DOCS, ROOT, linked_files, name_of
from scripts import draw_rooms

SOURCES = ROOT / "src" / "stratalog"
MODULE = re.compile(r"`((?:[a-z_]+/)+[a-z_]*(?:\.py)?)`")
ROOMS = {path.name for path in SOURCES.iterdir() if path.is_dir()}


def modules_in(path: Path) -> list[str]:
    """The paths below the sources that a page names."""
    named = MODULE.findall(path.read_text(encoding="utf-8"))
    return [each for each in named if each.partition("/")[0] in ROOMS]


@pytest.mark.parametrize("path", linked_files(), ids=name_of)
def test_modules_that_a_page_names_are_there(path: Path) -> None:
    missing = [each for each in modules_in(path) if not (SOURCES / each).exists()]
    assert not missing, f"{name_of(path)} names {', '.join(missing)}"


def test_the_picture_of_the_rooms_is_that_of_the_contracts() -> None:
    drawn = (DOCS / "pictures" / "rooms.svg").read_text(encoding="utf-8")
    assert drawn == draw_rooms.picture(), "run ./dev python scripts/draw_rooms.py"


def test_no_room_has_more_than_twenty_modules() -> None:
    rooms = [path for path in SOURCES.rglob("*") if path.is_dir()]
    crowded = {
        name_of(room): len(modules)
        for room in [SOURCES, *rooms]
        if len(modules := [each for each in room.glob("*.py") if each.name != "__init__.py"]) > 20
    }
    assert not crowded
