"""Write the inventories anew: PYTHONPATH=tests ./dev python -m public.make [NAME ...]

Whatever then is another in the version control is what users will notice.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from public import commands, names, printing
from public.stored import Inventory, store


def _without_spark() -> Inventory:
    with tempfile.TemporaryDirectory() as folder:
        return printing.without_spark(Path(folder))


def _with_spark() -> Inventory:
    from stratalog.pipeline.session import session

    with tempfile.TemporaryDirectory() as folder, session(master="local[2]"):
        return printing.with_spark(Path(folder))


INVENTORIES: dict[str, Callable[[], Inventory]] = {
    "names": names.inventory,
    "commands": commands.inventory,
    "json": _without_spark,
    "json-with-spark": _with_spark,
}


def main(chosen: list[str]) -> int:
    for name in chosen or INVENTORIES:
        store(name, INVENTORIES[name]())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
