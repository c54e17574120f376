"""The blocking twin has every public name of the async classes, with the same parameters."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import stratalog as sl
from stratalog import sync
from stratalog.objectlog.branch.destroy_log import destroy
from stratalog.objectlog.check.rebuild_nodes import repair
from stratalog.objectlog.check.scrub_log import scrub
from stratalog.objectlog.collection.sweep_log import sweep

PAIRS = [
    (sl.LogWriter, sync.LogWriter),
    (sl.LogReader, sync.LogReader),
    (sl.CursorStore, sync.CursorStore),
    (sl.Cursor, sync.Cursor),
    (sl.PinStore, sync.PinStore),
    (sl.Pin, sync.Pin),
    (sl.PolicyStore, sync.PolicyStore),
    (sl.Collector, sync.Collector),
    (sl.Sealer, sync.Sealer),
]


def public_names(cls: type) -> list[str]:
    return sorted(name for name in dir(cls) if not name.startswith("_"))


def methods() -> Iterator[tuple[type, type, str]]:
    for original, twin in PAIRS:
        for name in public_names(original):
            if callable(getattr(original, name)):
                yield original, twin, name


@pytest.mark.parametrize(("original", "twin"), PAIRS)
def test_the_twin_has_exactly_the_public_names_of_the_original(original: type, twin: type) -> None:
    assert public_names(twin) == public_names(original)


@pytest.mark.parametrize(("original", "twin", "name"), list(methods()))
def test_parameters_defaults_and_annotations_are_the_same(
    original: type, twin: type, name: str
) -> None:
    of_original = inspect.signature(getattr(original, name))
    of_twin = inspect.signature(getattr(twin, name))
    assert list(of_twin.parameters.values()) == list(of_original.parameters.values())


@pytest.mark.parametrize(("original", "twin", "name"), list(methods()))
def test_return_annotations_differ_only_by_what_is_awaited(
    original: type, twin: type, name: str
) -> None:
    before = inspect.signature(getattr(original, name)).return_annotation
    after = inspect.signature(getattr(twin, name)).return_annotation
    if name == "open":
        assert after is twin
    elif before.startswith("AsyncGenerator["):
        assert issubclass(after.__origin__, Iterator)
    elif before.startswith("Awaitable["):
        assert after.__origin__ is Future
    else:
        assert after == before


@pytest.mark.parametrize(("original", "twin", "name"), list(methods()))
def test_the_words_of_the_original_are_kept_and_no_twin_method_is_a_coroutine(
    original: type, twin: type, name: str
) -> None:
    assert inspect.getdoc(getattr(twin, name)) == inspect.getdoc(getattr(original, name))
    assert not inspect.iscoroutinefunction(getattr(twin, name))
    assert not inspect.isasyncgenfunction(getattr(twin, name))


@pytest.mark.parametrize("name", ["CursorStore", "PinStore", "PolicyStore", "Sealer", "Collector"])
def test_constructors_are_the_same(name: str) -> None:
    assert inspect.signature(getattr(sync, name)) == inspect.signature(getattr(sl, name))


@pytest.mark.parametrize(
    ("original", "twin"),
    [
        (sl.create_log, sync.create_log),
        (sl.collect, sync.collect),
        (sweep, sync.sweep),
        (scrub, sync.scrub),
        (repair, sync.repair),
        (destroy, sync.destroy),
        (sl.verify, sync.verify),
        (sl.fork, sync.fork),
        (sl.abort_fork, sync.abort_fork),
        (sl.copy_log, sync.copy_log),
    ],
)
def test_functions_have_the_same_parameters(
    original: Callable[..., object], twin: Callable[..., object]
) -> None:
    assert inspect.signature(twin) == inspect.signature(original)
    assert inspect.getdoc(twin) == inspect.getdoc(original)
    assert asyncio.iscoroutinefunction(original)
    assert not asyncio.iscoroutinefunction(twin)


SNIPPET = """
import stratalog as sl

with sl.sync.LogWriter.open("x", create=True, options=sl.WriterOptions()) as log:
    reveal_type(log)
    reveal_type(log.append(b"one", expected_offset=1))
    reveal_type(log.append_many([b"one"]))
    reveal_type(log.submit(b"one"))
    reveal_type(log.manifest)
    log.append("text")
    log.append(b"one", offset=1)
    log.open("x", no=1)

reader = sl.sync.LogReader.open("x")
reveal_type(reader.scan(from_offset=1, limits=sl.Limits()))
reveal_type(next(reader.records(from_offset=1)))
reader.batches(from_offset="1")
cursors = sl.sync.CursorStore("x")
reveal_type(cursors.create("name", 1).move(2))
reveal_type(cursors.list())
pins = sl.sync.PinStore("x", owner="me")
reveal_type(pins.create("name", 1, note="why").renew(None))
reveal_type(pins.list())
reveal_type(pins.release_expired())
pins.create("name", offset=1)
reveal_type(sl.sync.verify("x"))
reveal_type(sl.sync.create_log)
with sl.sync.LogWriter.open("x") as log:
    reveal_type(sl.sync.collect("x", log_writer=log, options=sl.CollectorOptions()))
    reveal_type(sl.sync.Collector("x", log_writer=log).plan())
sl.Collector("x", log_writer=log)
"""

REVEALED = """
stratalog.sync.LogWriter
stratalog.objectlog.stored.position.LogPosition
stratalog.objectlog.stored.position.Span
concurrent.futures._base.Future[stratalog.objectlog.stored.position.LogPosition]
stratalog.objectlog.stored.manifest.Manifest
list[stratalog.objectlog.stored.fragment.Fragment]
stratalog.objectlog.read.reader.Record
stratalog.sync.Cursor
list[stratalog.sync.Cursor]
stratalog.sync.Pin
list[stratalog.sync.Pin]
tuple[list[stratalog.sync.Pin], list[stratalog.sync.Pin]]
stratalog.objectlog.check.verify_log.VerifyReport
def (url: str | os.PathLike[str] | stratalog.store.protocol.Store, *, exist_ok: bool =, \
first_offset: int =, writer: str =, name: str | None =, runtime: stratalog.runtime.Runtime =)
stratalog.objectlog.collection.collector.Collected
tuple[stratalog.objectlog.stored.plan.Garbage | None, stratalog.objectlog.stored.plan.PlanState]
"""


@pytest.mark.slow
def test_a_strict_type_checker_sees_exact_types_and_refuses_wrong_calls(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(snippet)],
        capture_output=True,
        text=True,
        cwd=root,
        timeout=240,
    )
    assert re.findall(r'Revealed type is "(.*)"', checked.stdout) == REVEALED.split("\n")[1:-1]
    wrong = re.findall(r"snippet\.py:(\d+): error", checked.stdout)
    lines = [SNIPPET.split("\n")[int(number) - 1].strip() for number in wrong]
    assert lines == [
        'log.append("text")',
        'log.append(b"one", offset=1)',
        'log.open("x", no=1)',
        'reader.batches(from_offset="1")',
        'pins.create("name", offset=1)',
        'sl.Collector("x", log_writer=log)',
    ], checked.stdout


def test_a_twin_is_opened_with_an_old_name_too() -> None:
    old: dict[str, Any] = {"beside": None}
    with (
        pytest.warns(
            DeprecationWarning, match="'beside' of LogWriter.open is called 'before_link'"
        ),
        sync.LogWriter.open("memory://old-name", create=True, **old) as log,
    ):
        assert log.tail == 1
