"""What the documentation states as a list is what the code has."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys

import pytest

import stratalog as sl
from docs.markdown_files import ROOT, blocks_of
from stratalog import errors
from stratalog.cli.exits import EXITS

DOCS = ROOT / "docs"
ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.StratalogError)
]


def table_of(page: str, heading: str) -> dict[str, list[str]]:
    """The first table below a heading: its rows by their first cell, without marks of code."""
    text = (DOCS / page).read_text(encoding="utf-8")
    section = text.split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    return {first.strip("`"): rest for first, *rest in cells}


def test_the_reference_is_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "make_reference.py", "--check"],
        env={"PYTHONPATH": str(ROOT / "src")},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (
        "write it anew: ./dev python scripts/make_reference.py\n" + done.stdout + done.stderr
    )


@pytest.mark.parametrize(
    ("page", "options"),
    [("guide/writing.md", sl.WriterOptions), ("guide/reading.md", sl.ReaderOptions)],
)
def test_the_guides_list_every_option_with_its_default(
    page: str, options: type[sl.WriterOptions] | type[sl.ReaderOptions]
) -> None:
    table = table_of(page, "## Options")
    assert {name: value_of(row[0]) for name, row in table.items()} == {
        field.name: field.default for field in dataclasses.fields(options)
    }


def value_of(cell: str) -> object:
    """A default as a guide writes it: ``1 MiB``, ``1,000,000``, ``0.05``, or Python as code."""
    if cell.startswith("`"):
        return {"True": True, "False": False}.get(cell.strip("`"), cell.strip('`"'))
    if cell.endswith(" MiB"):
        return int(cell.removesuffix(" MiB")) * 1024 * 1024
    number = cell.replace(",", "")
    return float(number) if "." in number else int(number)


@pytest.mark.parametrize("options", [sl.WriterOptions, sl.ReaderOptions])
def test_the_limits_name_options_that_exist(
    options: type[sl.WriterOptions] | type[sl.ReaderOptions],
) -> None:
    known = {
        field.name
        for kind in (sl.WriterOptions, sl.ReaderOptions)
        for field in dataclasses.fields(kind)
    }
    stated = {
        name
        for heading in ("## Sizes", "## Queues", "## Time")
        for row in table_of("limits.md", heading).values()
        for name in re.findall(r"`(\w+)`", row[1])
    }
    assert stated - {"connect_timeout_s"} <= known
    names = {field.name for field in dataclasses.fields(options)}
    limits = {name for name in names if name.endswith(("_max", "_bytes", "_fragments"))}
    assert limits <= stated


def test_the_command_line_page_lists_every_exit_code() -> None:
    table = table_of("cli.md", "## Exit codes")
    assert {int(code): row[0] for code, row in table.items()} == {
        each.code: each.meaning for each in EXITS
    }


def test_troubleshooting_has_a_section_for_each_kind_of_error() -> None:
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## `([\w-]+)`$", text, re.MULTILINE)
    assert sorted(sections) == sorted(kind.kind for kind in ERRORS)


def test_the_format_page_shows_documents_that_decode() -> None:
    documents = [
        json.loads(block.text)
        for block in blocks_of(DOCS / "format.md")
        if block.language == "json"
    ]
    manifest = sl.Manifest.from_json(json.dumps(documents[0]).encode())
    manifest.check()
    assert json.loads(manifest.to_json()) == documents[0]
    assert list(documents[1]) == ["position", "epoch_us", "writer", "write_id"]
