"""What can be imported and how it is called, whichever module it is defined in."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import cast

import msgspec

from public.stored import Inventory, stored
from scripts.make_reference import NOT_CONSTRUCTED
from stratalog.errors import StratalogError
from stratalog.renamed import RENAMED

IN_FULL = (
    "stratalog",
    "stratalog.broker",
    "stratalog.errors",
    "stratalog.pipeline",
    "stratalog.segments",
    "stratalog.sync",
    "stratalog.testing",
)
BY_NAME = ("stratalog.herd", "stratalog.objectlog", "stratalog.soak", "stratalog.store")

# What programs, Spark and the documentation import from a module of its own.
PLACES = """
pyspark_stratalog DefaultSource
stratalog.cli main
stratalog.cli.app app
stratalog.pipeline.audit read_audit
stratalog.pipeline.herd_collect collect_herd
stratalog.pipeline.herd_scrub scrub_herd
stratalog.pipeline.herd_verify verify_herd
stratalog.pipeline.materialize MaterializeOptions materialize
stratalog.pipeline.merging latest_by_key
stratalog.pipeline.output_reading read_output
stratalog.pipeline.reading pinned_log read_herd read_log
stratalog.pipeline.report html_of
stratalog.pipeline.run RunOptions run_pipeline
stratalog.pipeline.session open_session session
stratalog.pipeline.spark_errors readable_spark_errors whole_errors
""".strip().splitlines()


def inventory() -> Inventory:
    """All public names: of the modules in full with their parameters and members."""
    return {
        "names": {
            **{module: _in_full(import_module(module)) for module in IN_FULL},
            **{module: _by_name(import_module(module)) for module in BY_NAME},
        },
        "places": dict(map(_place, PLACES)),
    }


def public_names(module: ModuleType) -> list[str]:
    """Those that a module lists. The errors list none: there it is each kind of error."""
    listed: list[str] | None = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    kinds = (name for name, value in vars(module).items() if _is_error(value))
    return sorted(name for name in kinds if not name.startswith("_"))


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, StratalogError)


def _in_full(module: ModuleType) -> dict[str, object]:
    return {name: _described(name, getattr(module, name)) for name in public_names(module)}


def _by_name(module: ModuleType) -> dict[str, object]:
    """These packages may show more than they did: other layers of the library enter by them."""
    listed = cast(Mapping[str, Mapping[str, object]], stored("names")["names"])
    return {
        name: _kind(getattr(module, name))
        for name in listed[module.__name__]
        if hasattr(module, name)
    }


def _place(line: str) -> tuple[str, dict[str, object]]:
    place, *names = line.split()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        module = import_module(place)
    return place, {name: _described(name, getattr(module, name)) for name in names}


def _kind(value: object) -> str:
    if isinstance(value, ModuleType):
        return "module"
    if inspect.isclass(value):
        return "class"
    return "function" if inspect.isroutine(value) else "value"


def _described(name: str, value: object) -> dict[str, object]:
    if inspect.isclass(value):
        return {"kind": "class", **_class(name, value)}
    if inspect.isroutine(value):
        return {"kind": "function", "called": _call(value)}
    return {"kind": _kind(value)}


# Classes


def _class(name: str, cls: type) -> dict[str, object]:
    facts: dict[str, object] = {"members": dict(sorted(_members(cls)))}
    if bases := _bases(cls):
        facts["is"] = bases
    if name not in NOT_CONSTRUCTED and not _is_given(cls):
        facts["called"] = _call(cls)
    if issubclass(cls, StratalogError):
        facts["error"] = cls.kind
    return facts


def _is_given(cls: type) -> bool:
    """Whether nobody makes one by calling the class, or as every exception is made."""
    return (
        bool(getattr(cls, "_is_protocol", False))
        or inspect.isabstract(cls)
        or issubclass(cls, enum.Enum)
        or (
            cls.__init__ in (object.__init__, Exception.__init__, BaseException.__init__)
            and not issubclass(cls, msgspec.Struct | tuple)
        )
    )


def _bases(cls: type) -> list[str]:
    """The public and the built-in classes that it is one of: what an ``except`` may name."""
    plain = (object, enum.Enum)
    return sorted(
        base.__name__
        for base in cls.__mro__[1:]
        if base not in plain and (base.__module__ == "builtins" or base in _public_classes())
    )


@functools.cache
def _public_classes() -> frozenset[type]:
    modules = map(import_module, (*IN_FULL, *BY_NAME))
    values = (getattr(module, name) for module in modules for name in public_names(module))
    return frozenset(value for value in values if inspect.isclass(value))


def _members(cls: type) -> Iterator[tuple[str, str]]:
    """Fields, properties and methods, also those of bases that are this library's."""
    fields = dict(_fields(cls))
    yield from fields.items()
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == "stratalog":
            for name in vars(base):
                if not name.startswith("_") and name not in fields:
                    yield name, _member(cls, name)


def _member(cls: type, name: str) -> str:
    value = getattr(cls, name)
    if callable(value):
        return _call(value)
    is_plain = isinstance(value, str | int | float | tuple | frozenset | None)
    return "value" if is_plain else "property"


def _fields(cls: type) -> Iterator[tuple[str, str]]:
    names: list[str] = []
    if issubclass(cls, enum.Enum):
        yield from ((each.name, f"= {each.value!r}") for each in cls)
    elif dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]
    elif issubclass(cls, msgspec.Struct):
        names = [field.name for field in msgspec.structs.fields(cls)]
    elif issubclass(cls, tuple):
        names = list(getattr(cls, "_fields", ()))
    yield from ((name, "field") for name in names if not name.startswith("_"))


# Calls


def _call(value: Callable[..., object]) -> str:
    """``(url, *, create=, **more)``: names, kinds, and what may be left out.

    A parameter that was renamed stands under its old name, which goes on working.
    """
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(?)"
    word = "async " if inspect.iscoroutinefunction(value) else ""
    renamed = value.__init__ if inspect.isclass(value) else value
    old_names = {new: old for old, new in getattr(renamed, RENAMED, {}).items()}
    return f"{word}({', '.join(_parameters(signature, old_names))})"


def _parameters(signature: inspect.Signature, old_names: Mapping[str, str]) -> Iterator[str]:
    starred = False
    for each in signature.parameters.values():
        starred |= each.kind is each.VAR_POSITIONAL
        if each.kind is each.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        stars = "*" if each.kind is each.VAR_POSITIONAL else ""
        stars = "**" if each.kind is each.VAR_KEYWORD else stars
        only_by_place = "/" if each.kind is each.POSITIONAL_ONLY else ""
        name = old_names.get(each.name, each.name)
        yield f"{stars}{name}{only_by_place}{'' if each.default is each.empty else '='}"
