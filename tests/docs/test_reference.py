"""What the documentation states as a list is what the code has."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import stratalog as sl
from docs.markdown_files import DOCS, ROOT, blocks_of, name_of, table_of
from scripts import make_tables
from stratalog import ScrubOptions, SweepOptions, errors
from stratalog.broker import BrokerOptions
from stratalog.cli.exits import EXITS
from stratalog.objectlog.check.damage import DamageKind
from stratalog.objectlog.holds.upload_guard import StoredUploadGuard
from stratalog.objectlog.stored.manifest import decode_manifest, encode_manifest
from stratalog.objectlog.stored.object_digest import promised_digest
from stratalog.objectlog.stored.plan import GARBAGE_PATH, Garbage
from stratalog.objectlog.stored.stored_json import decode_document
from stratalog.segments import DiskDamageKind, DiskOptions

ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.StratalogError)
]


Options = (
    sl.WriterOptions
    | sl.ReaderOptions
    | sl.CollectorOptions
    | SweepOptions
    | ScrubOptions
    | sl.CopyOptions
    | DiskOptions
)
OPTIONS: list[type[Options]] = [
    sl.WriterOptions,
    sl.ReaderOptions,
    sl.CollectorOptions,
    SweepOptions,
    ScrubOptions,
    sl.CopyOptions,
]


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
    ("page", "heading", "options"),
    [
        ("guide/writing.md", "## Options", sl.WriterOptions),
        ("guide/reading.md", "## Options", sl.ReaderOptions),
        ("operating.md", "## Collect", sl.CollectorOptions),
        ("guide/disk.md", "## Limits and options", DiskOptions),
    ],
)
def test_the_guides_list_every_option_with_its_default(
    page: str, heading: str, options: type[Options]
) -> None:
    table = table_of(page, heading)
    assert {name: value_of(row[0]) for name, row in table.items()} == {
        field.name: field.default for field in dataclasses.fields(options)
    }


def value_of(cell: str) -> object:
    """A default as a guide writes it: ``1 MiB``, ``1,000,000``, ``0.05``, or Python as code."""
    if cell.startswith("`"):
        return {"True": True, "False": False, "None": None}.get(cell.strip("`"), cell.strip('`"'))
    if cell.endswith(" MiB"):
        return int(cell.removesuffix(" MiB")) * 1024 * 1024
    number = cell.replace(",", "")
    return float(number) if "." in number else int(number)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_limits_name_options_that_exist(options: type[Options]) -> None:
    known = {field.name for kind in OPTIONS for field in dataclasses.fields(kind)}
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


def test_operating_names_every_kind_of_damage() -> None:
    text = (DOCS / "operating.md").read_text(encoding="utf-8")
    for kind in DamageKind:
        family = kind.value.partition("-")[0]
        assert f"`{kind.value}`" in text or f"`{family}-…`" in text, kind.value


def test_the_guide_to_a_disk_names_every_kind_of_damage() -> None:
    stated = " ".join(table_of("guide/disk.md", "## Inspecting a data directory"))
    assert set(re.findall(r"[\w-]+", stated)) == {kind.value for kind in DiskDamageKind}


def test_operating_quotes_what_the_code_says_and_its_kind() -> None:
    source = "".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    source += f"not a {sl.Garbage.what}"  # which decoders put together
    for message, (kind, *_) in table_of("operating.md", "## Alarms").items():
        assert kind.strip("`") in {each.kind for each in ERRORS}
        for part in message.split("…"):
            assert part.strip() in source, message


def test_the_format_page_shows_documents_that_decode() -> None:
    documents = [
        json.loads(block.text)
        for block in blocks_of(DOCS / "format.md")
        if block.language == "json"
    ]
    compact = json.dumps(documents[0], separators=(",", ":")).encode()
    manifest = decode_manifest(compact)
    assert encode_manifest(manifest) == compact, "its digests are true"
    assert promised_digest(manifest.fragments[0]) is not None
    assert list(documents[1]) == ["position", "epoch_us", "writer", "write_id"]
    policy = sl.Policy.from_json(json.dumps(documents[2]).encode())
    assert list(json.loads(policy.to_json()).items()) == list(documents[2].items())
    plan = decode_document(Garbage, json.dumps(documents[3]).encode(), GARBAGE_PATH)
    assert plan.is_empty
    assert list(json.loads(plan.to_json()).items()) == list(documents[3].items())
    stage = StoredUploadGuard.from_json(json.dumps(documents[4]).encode())
    assert list(json.loads(stage.to_json()).items()) == list(documents[4].items())


def test_the_format_page_explains_every_field_of_a_policy() -> None:
    explained = {
        name for cell in table_of("format.md", "## Policy") for name in re.findall(r"\w+", cell)
    }
    fields = {field.encode_name for field in msgspec.structs.fields(sl.Policy)}
    assert explained == fields - {"<unknown>"}


def test_the_format_page_explains_every_field_of_a_plan() -> None:
    table = table_of("format.md", "## The plan of a collection")
    explained = {name for cell in table for name in re.findall(r"\w+", cell)}
    fields = {field.encode_name for field in msgspec.structs.fields(sl.Garbage)}
    assert explained == fields - {"<unknown>", "format", "write_id"}


@pytest.mark.parametrize("page", make_tables.pages(), ids=name_of)
def test_tables_that_are_made_from_the_code_are_what_the_code_says(page: Path) -> None:
    stored = page.read_text(encoding="utf-8")
    assert stored == make_tables.with_tables(stored), "run ./dev python -m scripts.make_tables"


def test_the_limits_state_every_option_of_a_broker_that_is_one() -> None:
    table = table_of("limits.md", "## A broker")
    stated = {name: row for row in table.values() for name in re.findall(r"`(\w+)`", row[1])}
    limits = {
        field.name
        for field in dataclasses.fields(BrokerOptions)
        if field.name.endswith(("_max", "_min", "_bytes"))
    }
    assert limits <= stated.keys()
    assert stated.keys() <= {field.name for field in dataclasses.fields(BrokerOptions)}
