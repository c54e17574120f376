"""Write docs/reference.md from the code: every public name with its signature and docstring.

./dev python scripts/make_reference.py            write it
./dev python scripts/make_reference.py --check    fail if the file is not what would be written
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import enum
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import msgspec

from stratalog.errors import StratalogError
from stratalog.partitions import PartitionLog

TARGET = Path(__file__).parents[1] / "docs" / "reference.md"

MODULES = (
    "stratalog",
    "stratalog.sync",
    "stratalog.pipeline",
    "stratalog.segments",
    "stratalog.partitions",
    "stratalog.broker",
    "stratalog.errors",
    "stratalog.testing",
)

# Given by other calls: their constructors are not part of the interface.
NOT_CONSTRUCTED = frozenset(
    """LogWriter LogReader Cursor Pin Record Fragment Snapshot SnapshotPointer Manifest Node
    Disk Partition Simulation Trace SimulatedRuntime SimulatedLoop Operation
    Broker DiskLog KeyedLog""".split()
)

HEADER = """# API reference

Made from the code by `scripts/make_reference.py`; do not edit. What is listed here is the public
interface. Everything else may change without notice.

"""


def render() -> str:
    """The whole page."""
    modules = [import_module(name) for name in MODULES]
    contents = "\n".join(f"- [`{module.__name__}`](#{_slug(module)})" for module in modules)
    sections = "\n".join(_module(module) for module in modules)
    page = f"{HEADER}{contents}\n\n{sections}".rstrip("\n") + "\n"
    return re.sub(r"\n{3,}", "\n\n", page)


def _slug(module: ModuleType) -> str:
    return module.__name__.replace(".", "")


def _module(module: ModuleType) -> str:
    parts = [f"## {module.__name__}\n", _doc(module)]
    for name in _names(module):
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            parts.append(f"### {name}\n\nA module, see [`{value.__name__}`](#{_slug(value)}).\n")
        elif inspect.isclass(value) and value.__name__ != name:
            parts.append(f"### {name}\n\nThe old name of `{value.__name__}`.\n")
        elif inspect.isclass(value):
            parts.append(_class(name, value))
        elif inspect.isfunction(value):
            parts.append(f"### {name}\n\n{_function(name, value)}\n{_doc(value)}")
        else:
            parts.append(_constant(name, value, module))
    return "\n".join(parts)


def _names(module: ModuleType) -> list[str]:
    """The public names, in the order of the source where it has one."""
    listed: list[str] | None = getattr(module, "__all__", None)
    if listed is not None:
        return listed
    return [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and name[0] != "_"
    ]


# ---- classes -----------------------------------------------------------------------------------


def _class(name: str, cls: type) -> str:
    bases = [base.__name__ for base in cls.__bases__ if base.__module__.startswith("stratalog")]
    public = [base for base in bases if base in _all_names()]
    parts = [f"### {name}\n"]
    if name not in NOT_CONSTRUCTED and not _is_plain(cls):
        parts.append(_function(name, cls) + "\n")
    if public:
        parts.append(f"A {', '.join(f'`{base}`' for base in public)}.\n")
    parts.append(_doc(cls))
    if "the module's docstring" in (cls.__doc__ or ""):
        parts.append(_doc(sys.modules[cls.__module__]))
    if issubclass(cls, StratalogError):
        parts.append(
            f"Its `kind` is `{cls.kind}`. Its hint, if none is more precise: {cls.default_hint}\n"
        )
    if (fields := _fields(cls)) is not None:
        parts.append(fields)
    tests: list[str] = []
    for member, value in _members(cls):
        if member.startswith("test_"):
            tests.append(f"- {member.removeprefix('test_').replace('_', ' ')}")
        else:
            parts.append(_member(cls, name, member, value))
    if tests:
        parts.append("Its tests:\n\n" + "\n".join(tests) + "\n")
    return "\n".join(parts)


@functools.cache
def _all_names() -> frozenset[str]:
    return frozenset(name for module in MODULES for name in _names(import_module(module)))


def _is_plain(cls: type) -> bool:
    """Whether the constructor says nothing, or nothing that the table of fields does not say."""
    if getattr(cls, "_is_protocol", False) or inspect.isabstract(cls):
        return True
    if dataclasses.is_dataclass(cls) or issubclass(cls, msgspec.Struct | tuple | enum.Enum):
        return True
    return cls.__init__ is object.__init__ or issubclass(cls, BaseException)


def _fields(cls: type) -> str | None:
    """The fields of a dataclass or struct as a table, or the values of an enumeration."""
    rows: list[tuple[str, object, str]]
    if issubclass(cls, enum.Enum):
        return "\n".join(f"- `{cls.__name__}.{each.name}`: `{each.value}`" for each in cls) + "\n"
    if dataclasses.is_dataclass(cls):
        rows = [
            (field.name, field.type, _default(field.default))
            for field in dataclasses.fields(cls)
            if field.init
        ]
    elif issubclass(cls, msgspec.Struct):
        rows = [
            (field.name, _stated_type(cls, field.name), _default(field.default))
            for field in msgspec.structs.fields(cls)
            if field.name != "unknown"
        ]
    elif issubclass(cls, tuple):
        rows = [(name, kind, "") for name, kind in inspect.get_annotations(cls).items()]
    else:
        return None
    docs = attribute_docs(cls)
    lines = ["| field | type | default | |", "|---|---|---|---|"]
    for name, kind, default in rows:
        type_cell = _annotation(kind).replace("|", "\\|")
        default_cell = f"`{default}`" if default else ""
        lines.append(f"| `{name}` | `{type_cell}` | {default_cell} | {docs.get(name, '')} |")
    return "\n".join(lines) + "\n"


def _stated_type(cls: type, name: str) -> object:
    for base in cls.__mro__:
        stated = inspect.get_annotations(base)
        if name in stated:
            return stated[name]
    raise KeyError(name)


def attribute_docs(cls: type) -> dict[str, str]:
    """The strings that stand below the fields of a class."""
    docs: dict[str, str] = {}
    for base in cls.__mro__:
        if base.__module__.startswith("stratalog"):
            body = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base))).body[0]
            assert isinstance(body, ast.ClassDef)
            for name, text in _documented(body.body):
                docs.setdefault(name, text)
    return docs


def _documented(statements: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, after in pairwise(statements):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(statement, ast.AnnAssign):
            target = statement.target
        if (
            isinstance(target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            yield target.id, " ".join(after.value.value.replace("``", "`").split())


def _members(cls: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties, also of our own bases, without what the fields already say."""
    seen: set[str] = set()
    if dataclasses.is_dataclass(cls):
        seen |= {field.name for field in dataclasses.fields(cls)}
    if issubclass(cls, msgspec.Struct):
        seen |= {field.name for field in msgspec.structs.fields(cls)}
    for base in cls.__mro__:
        if not base.__module__.startswith("stratalog") or (base is not cls and _is_listed(base)):
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            if name in _promised() and not inspect.getdoc(value):
                continue
            if _is_property(value) or callable(getattr(cls, name)):
                yield name, value


@functools.cache
def _promised() -> frozenset[str]:
    """What every partition log has: its implementations do not repeat what the protocol says."""
    return frozenset(vars(PartitionLog))


def _is_listed(base: type) -> bool:
    """Whether a base of an error has an entry of its own, which need not be repeated."""
    return base.__name__ in _all_names() and issubclass(base, BaseException)


def _is_property(value: object) -> bool:
    return isinstance(value, property | functools.cached_property) or (
        type(value).__module__.startswith("stratalog") and type(value).__name__ == "passing"
    )


def _member(cls: type, owner: str, name: str, value: object) -> str:
    title = f"{owner}.{name}"
    if _is_property(value):
        getter = getattr(value, "fget", None) or getattr(value, "_getter", None)
        gives = f": {_annotation(inspect.signature(getter).return_annotation)}" if getter else ""
        return f"#### {title}\n\n```py\n{title}{gives}\n```\n\n{_doc(value)}"
    method = value if inspect.isfunction(value) else getattr(cls, name)
    return f"#### {title}\n\n{_function(title, method, skip_first=True)}\n{_doc(method)}"


# ---- signatures and texts ----------------------------------------------------------------------


def _function(name: str, value: object, *, skip_first: bool = False) -> str:
    assert callable(value)
    signature = inspect.signature(value)
    parameters = list(signature.parameters.values())
    if skip_first and parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    shown: list[str] = []
    starred = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        starred = starred or parameter.kind is parameter.VAR_POSITIONAL
        shown.append(_parameter(parameter))
    word = "async def " if _is_async(value) else ""
    gives = signature.return_annotation
    arrow = (
        "" if gives is signature.empty or inspect.isclass(value) else f" -> {_annotation(gives)}"
    )
    line = f"{word}{name}({', '.join(shown)}){arrow}"
    if len(line) > 100:
        line = f"{word}{name}(\n    " + ",\n    ".join(shown) + f",\n){arrow}"
    return f"```py\n{line}\n```\n"


def _is_async(value: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(value)


def _parameter(parameter: inspect.Parameter) -> str:
    stars = ""
    if parameter.kind is parameter.VAR_POSITIONAL:
        stars = "*"
    elif parameter.kind is parameter.VAR_KEYWORD:
        stars = "**"
    text = stars + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        equals = " = " if parameter.annotation is not parameter.empty else "="
        text += equals + _default(parameter.default)
    return text


def _annotation(kind: object) -> str:
    """A type as it stands in the source, or without the modules of its parts."""
    if isinstance(kind, str):
        return kind
    shown: str = inspect.formatannotation(kind)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", shown)


def _default(value: object) -> str:
    """A default as one would write it; nothing for none."""
    if value is dataclasses.MISSING or value is msgspec.NODEFAULT:
        return ""
    if value is msgspec.UNSET:
        return "UNSET"
    if dataclasses.is_dataclass(value) or " at 0x" in repr(value):
        return f"{type(value).__name__}()"
    return repr(value)


def _constant(name: str, value: object, module: ModuleType) -> str:
    """A constant or an alias, with the string that stands below it in its own module."""
    text = ""
    for home_name in sorted(sys.modules):
        home = sys.modules[home_name]
        if home_name.startswith(module.__name__) and name in vars(home) and home.__file__:
            statements = ast.parse(Path(home.__file__).read_text(encoding="utf-8")).body
            text = text or dict(_documented(statements)).get(name, "")
    shown = repr(value) if dataclasses.is_dataclass(value) else _annotation(value)
    return f"### {name}\n\n```py\n{name} = {shown}\n```\n" + (f"\n{text}\n" if text else "")


def _doc(value: object) -> str:
    text = inspect.getdoc(value) or ""
    name = getattr(value, "__name__", "")
    if not text or text.startswith(f"{name}("):
        return ""
    return text.replace("``", "`").strip() + "\n"


def main() -> int:
    page = render()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(page, encoding="utf-8")
        return 0
    stored = TARGET.read_text(encoding="utf-8") if TARGET.exists() else ""
    difference = difflib.unified_diff(
        stored.splitlines(), page.splitlines(), "stored", "made from the code", lineterm="", n=1
    )
    lines = list(difference)
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
