"""What can be typed in a shell: commands, arguments, options, and the codes they end with."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from typer.main import get_command

from public.stored import Inventory
from stratalog.cli.app import app
from stratalog.cli.exits import EXITS


def inventory() -> Inventory:
    return {
        "commands": {name: _command(each) for name, each in commands()},
        "exit_codes": {str(each.code): _exit(each.kinds, each.meaning) for each in EXITS},
    }


def commands() -> Iterator[tuple[str, Any]]:
    """Every command and group by its words; the program itself has none."""
    yield from _walk(get_command(app))


def with_json() -> set[str]:
    """The commands that can tell programs what they did."""
    return {
        name
        for name, each in commands()
        if any("--json" in parameter.opts for parameter in each.params)
    }


def _walk(command: Any, *words: str) -> Iterator[tuple[str, Any]]:
    yield " ".join(words), command
    for word, each in getattr(command, "commands", {}).items():
        yield from _walk(each, *words, word)


def _exit(kinds: tuple[type, ...], meaning: str) -> dict[str, object]:
    return {"errors": [kind.__name__ for kind in kinds], "meaning": meaning}


def _command(command: Any) -> dict[str, object]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    return {
        "arguments": [f"{each.name}: {_facts(each)}" for each in arguments],
        "options": {_spelling(each): _facts(each) for each in options},
        "hidden": bool(command.hidden),
    }


def _spelling(option: Any) -> str:
    """All ways to write it, and after a slash those that say the opposite."""
    ways = ", ".join(sorted(option.opts))
    return f"{ways} / {', '.join(option.secondary_opts)}" if option.secondary_opts else ways


def _facts(parameter: Any) -> str:
    facts = ["required" if parameter.required else f"default {parameter.default!r}"]
    if getattr(parameter, "is_flag", False):
        facts.append("flag")
    if getattr(parameter, "multiple", False):
        facts.append("repeatable")
    if parameter.nargs != 1:
        facts.append(f"takes {parameter.nargs}")
    return ", ".join([*facts, *_values(parameter)])


def _values(parameter: Any) -> Iterator[str]:
    """What it takes: numbers between limits, or one of some words."""
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        yield "one of " + " ".join(str(each.value) for each in kind)
    elif kind in (int, float):
        yield kind.__name__
    for word in ("min", "max"):
        if (limit := getattr(parameter, word, None)) is not None:
            yield f"{word} {limit}"
