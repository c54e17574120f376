"""The project's Markdown files, taken apart: fenced blocks, headings, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^(`{3,})(\S*)\s*$")
_COMMENT = re.compile(r"^<!--\s*(no-run|file|server|needs):\s*(.+?)\s*-->$")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_CODE_SPAN = re.compile(r"(`+)(.+?)\1")


@dataclass(frozen=True)
class Block:
    """A fenced block. A comment right before it may say ``no-run: reason``, ``file: name``,
    ``server: name`` or ``needs: program``."""

    language: str
    text: str
    line: int
    no_run: str | None = None
    file: str | None = None
    server: str | None = None
    needs: str | None = None


@dataclass(frozen=True)
class Link:
    """The target of a link or picture, and the line it is on."""

    target: str
    line: int


def executed_files() -> list[Path]:
    """The files whose blocks are tried."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def linked_files() -> list[Path]:
    """The files whose links must lead somewhere."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks_of(path: Path) -> list[Block]:
    """All fenced blocks, in order."""
    blocks: list[Block] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    before = ""
    index = 0
    while index < len(lines):
        opening = _FENCE.match(lines[index])
        if opening is None:
            before = lines[index].strip() or before
            index += 1
            continue
        end = lines.index(opening[1], index + 1)
        comment = _COMMENT.match(before)
        said = {comment[1]: comment[2]} if comment else {}
        blocks.append(
            Block(
                language=opening[2],
                text="\n".join(lines[index + 1 : end]) + "\n",
                line=index + 1,
                no_run=said.get("no-run"),
                file=said.get("file"),
                server=said.get("server"),
                needs=said.get("needs"),
            )
        )
        before = ""
        index = end + 1
    return blocks


def table_of(page: str, heading: str) -> dict[str, list[str]]:
    """The first table below a heading: its rows by their first cell, without marks of code."""
    text = "\n" + (DOCS / page).read_text(encoding="utf-8")
    section = text.split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    return {first.strip("`"): rest for first, *rest in cells}


def anchors_of(path: Path) -> set[str]:
    """The names that headings get on GitHub."""
    anchors: set[str] = set()
    for _, line in _prose(path):
        heading = _HEADING.match(line)
        if heading is None:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        name, number = slug, 0
        while name in anchors:
            number += 1
            name = f"{slug}-{number}"
        anchors.add(name)
    return anchors


def links_of(path: Path) -> list[Link]:
    """All links and pictures outside of code."""
    return [
        Link(found[1], number)
        for number, line in _prose(path)
        for found in _LINK.finditer(_CODE_SPAN.sub("`code`", line))
    ]


def _prose(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines outside of fenced blocks."""
    fence: str | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        opening = _FENCE.match(line)
        if fence is None and opening is not None:
            fence = opening[1]
        elif fence is not None:
            if line == fence:
                fence = None
        else:
            yield number, line
