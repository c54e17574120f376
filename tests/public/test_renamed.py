"""What was renamed goes on working under its old name, and says so."""

from __future__ import annotations

import asyncio
import inspect
import sys
from importlib import import_module
from typing import Any, cast

import pytest

import stratalog as sl
from stratalog.indexset import IndexSet
from stratalog.renamed import RENAMED, renamed_function, renamed_parameters
from stratalog.store import MemoryStore


@renamed_parameters(through="log_writer")
def collect(url: str, *, log_writer: str | None = None) -> tuple[str, str | None]:
    return url, log_writer


old_collect = renamed_function("old_collect", collect)


def test_an_old_parameter_is_taken_for_the_new_one_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="'through' of collect is called 'log_writer' now"):
        assert cast(Any, collect)("a", through="b") == ("a", "b")


def test_both_names_at_once_are_refused() -> None:
    with (
        pytest.warns(DeprecationWarning, match="through"),
        pytest.raises(TypeError, match="'through' is the old name of 'log_writer'"),
    ):
        cast(Any, collect)("a", through="b", log_writer="c")


def test_the_new_name_is_silent_and_alone_in_the_signature() -> None:
    assert collect("a", log_writer="b") == ("a", "b")
    assert list(inspect.signature(collect).parameters) == ["url", "log_writer"]


def test_an_old_function_is_the_new_one_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="old_collect is called 'collect' now"):
        assert old_collect("a") == ("a", None)


def test_an_old_module_can_be_imported_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    import stratalog.pipeline as pipeline

    monkeypatch.delitem(sys.modules, "stratalog.pipeline.merging", raising=False)
    with pytest.warns(DeprecationWarning, match="stratalog.pipeline.merging is called"):
        old = import_module("stratalog.pipeline.merging")
    assert old.latest_by_key is pipeline.latest_by_key
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        assert old.nothing


@renamed_parameters(doomed="offsets")
async def erase(offsets: str) -> str:
    return offsets


def test_a_coroutine_function_stays_one() -> None:
    assert inspect.iscoroutinefunction(erase)

    async def old_way() -> str:
        return cast(str, await cast(Any, erase)(doomed="a"))

    with pytest.warns(
        DeprecationWarning, match="'doomed' of erase is called 'offsets' now"
    ) as told:
        assert asyncio.run(old_way()) == "a"
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("function", "old"),
    [
        (sl.Collector, "through"),
        (sl.collect, "through"),
        (sl.compact, "through"),
        (sl.compact, "pressing"),
        (sl.erase, "doomed"),
        (sl.preview_erasure, "doomed"),
        (sl.sync.Collector, "through"),
        (sl.sync.collect, "through"),
        (sl.sync.compact, "through"),
        (sl.sync.compact, "pressing"),
        (sl.sync.erase, "doomed"),
        (sl.sync.preview_erasure, "doomed"),
    ],
)
def test_old_parameters_of_public_functions_go_on(function: Any, old: str) -> None:
    renamed = function.__init__ if inspect.isclass(function) else function
    new = getattr(renamed, RENAMED)[old]
    assert old not in inspect.signature(function).parameters
    assert new in inspect.signature(function).parameters


def test_a_class_takes_its_old_parameters() -> None:
    with pytest.warns(DeprecationWarning, match="'through' of Collector.__init__ is called"):
        cast(Any, sl.sync.Collector)("memory://renamed", through=None)


def test_the_warning_of_a_blocking_twin_is_about_its_caller() -> None:
    """Python shows such a warning only if it is about the program, not about a library."""
    store = MemoryStore()
    with pytest.warns(DeprecationWarning, match="'beside' of LogWriter.open is called") as told:
        log = cast(Any, sl.sync.LogWriter).open(store, create=True, beside=None)
    with log:
        log.append(b"one")
    with pytest.warns(DeprecationWarning, match="'doomed' of preview_erasure is") as also_told:
        found = cast(Any, sl.sync.preview_erasure)(store, doomed=IndexSet.of([1]))
    assert list(found.offsets) == [1]
    assert {each.filename for each in (*told, *also_told)} == {__file__}
    assert len(told) == len(also_told) == 1
