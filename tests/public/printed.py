"""What each command prints with ``--json``: the paths of its keys, and the types found there.

``fragments[].path`` is the path of each fragment of a list; ``spared.*.bytes`` is below keys that
are not the program's but somebody's names.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

from cli.calls import call
from public.commands import with_json

TYPES = {
    str: "text",
    bool: "bool",
    int: "integer",
    float: "number",
    dict: "object",
    list: "list",
    type(None): "null",
}

OF_SOMEBODY = frozenset({"set", "spared"})
ERROR = "an error"


class Printed:
    """Calls commands, and keeps the shape of what they print."""

    def __init__(self) -> None:
        self._shapes: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._known = with_json()

    def __call__(self, *words: str, input: bytes | None = None, code: int = 0) -> Any:
        """Call a command with ``--json``. Gives its last document."""
        done = call(*words, "--json", input=input, code=code)
        documents = [json.loads(line) for line in done.stdout_bytes.splitlines()]
        for each in documents:
            self.note(self._name_of(words), each)
        if code and not documents:
            self.note(ERROR, json.loads(done.stderr))
        return documents[-1] if documents else None

    def inventory(self) -> dict[str, object]:
        return {
            name: {path: " or ".join(sorted(types)) for path, types in shape.items()}
            for name, shape in self._shapes.items()
        }

    def _name_of(self, words: Collection[str]) -> str:
        one, two, *_ = *words, ""
        return one if one in self._known else f"{one} {two}"

    def note(self, name: str, document: object) -> None:
        """Keep the shape of what a command printed."""
        for path, kind in _shape(document):
            self._shapes[name][path].add(kind)


def _shape(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    yield path or "(all)", TYPES[type(value)]
    if isinstance(value, list):
        for each in value:
            yield from _shape(each, f"{path}[]")
    elif isinstance(value, dict):
        is_named = path.rpartition(".")[2] in OF_SOMEBODY
        for key, each in value.items():
            at = "*" if is_named else key
            yield from _below(each, f"{path}.{at}" if path else at)


def _below(value: object, path: str) -> Iterator[tuple[str, str]]:
    """What is below a key. A tree in a tree has the same keys, however deep it lies."""
    top, below, _ = path.partition(".")
    if below and path.endswith(".children"):
        yield path, TYPES[type(value)]
        assert isinstance(value, dict)
        for key, each in value.items():
            yield from _below(each, f"{top}.{key}")
    else:
        yield from _shape(value, path)
