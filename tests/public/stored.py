"""The stored inventories of what users rely on, and how one differs from what there is now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "inventory"

Inventory = dict[str, object]


def stored(name: str) -> Inventory:
    """An inventory as it was written last."""
    found: Inventory = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def store(name: str, inventory: Inventory) -> None:
    """Write an inventory, so that a change of it is a change of few lines."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(inventory, indent=2, sort_keys=True, ensure_ascii=False)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def check(name: str, now: Inventory) -> None:
    """Fail unless everything is as stored, and say what is not."""
    told = difference(stored(name), now)
    assert not told, (
        f"tests/public/inventory/{name}.json is not what there is now. What was lost breaks "
        "those who use it. If all of this is meant, write it anew: "
        f"PYTHONPATH=tests ./dev python -m public.make {name}\n" + "\n".join(told)
    )


def difference(before: Inventory, now: Inventory) -> list[str]:
    """What was lost, is another now, or was added: a line each, in this order."""
    found = sorted(_differences(before, now, ""))
    return [f"{what}: {where}" for _, what, where in found]


def _differences(
    before: Mapping[str, object], now: Mapping[str, object], path: str
) -> Iterator[tuple[int, str, str]]:
    """All that is not the same. Of what is lost or added as a whole only its name is told."""
    for name in sorted(before.keys() | now.keys()):
        at = f"{path} › {name}" if path else name
        if name not in now:
            yield 0, "lost", at
        elif name not in before:
            yield 2, "added", at
        elif before[name] != now[name]:
            yield from _changes(before[name], now[name], at)


def _changes(before: object, now: object, path: str) -> Iterator[tuple[int, str, str]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        yield from _differences(before, now, path)
    else:
        yield 1, "changed", f"{path}: {_parts(before, now)}"


def _parts(before: object, now: object) -> str:
    """Of a long list of parameters, keys or facts only what is another."""
    old, new = _split(before), _split(now)
    gone = ", ".join(each for each in old if each not in new)
    come = ", ".join(each for each in new if each not in old)
    if len(old) == 1 or not (gone or come):
        return f"{before} → {now}"
    return f"had {gone or 'nothing else'}, has {come or 'nothing for it'}; was {before}"


def _split(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(each) for each in value]
    return str(value).strip("()").split(", ")
