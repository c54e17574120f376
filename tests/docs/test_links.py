"""Every link inside the documentation leads to something that is there."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs.markdown_files import ROOT, anchors_of, linked_files, links_of, name_of

FILES = linked_files()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_links_lead_to_files_and_headings_that_are_there(path: Path) -> None:
    broken = [
        f"line {link.line}: {link.target}"
        for link in links_of(path)
        if not leads(path, link.target)
    ]
    assert not broken, f"{name_of(path)}: " + "; ".join(broken)


def leads(path: Path, target: str) -> bool:
    """Whether a link in this file leads somewhere. Other hosts are not asked."""
    parts = urlsplit(target)
    if parts.scheme:
        return parts.scheme in ("https", "mailto")
    found = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
    if not found.is_relative_to(ROOT) or not found.exists():
        return False
    return not parts.fragment or (found.suffix == ".md" and parts.fragment in anchors_of(found))


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        path = ahead.pop()
        if path in reached or path.suffix != ".md" or not path.is_file():
            continue
        reached.add(path)
        for link in links_of(path):
            parts = urlsplit(link.target)
            if not parts.scheme and parts.path:
                ahead.append((path.parent / unquote(parts.path)).resolve())
    assert sorted(map(name_of, set(FILES) - reached)) == []
