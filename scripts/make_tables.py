"""Write the tables of the documentation that the code knows better than a person.

    ./dev python -m scripts.make_tables

A page names the table that follows by a comment, such as ``<!-- made: broker-options -->``. The
table ends at the first line that is none of its rows.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_args, get_type_hints

from scripts.make_reference import attribute_docs
from stratalog.broker import Broker, BrokerOptions
from stratalog.broker.config import Logging
from stratalog.broker.http.metrics import families_of
from stratalog.broker.http.process import usage
from stratalog.broker.requests import served
from stratalog.broker.requests.dispatch import all_advertised
from stratalog.broker.topics.settings import NOT_SUPPORTED, SETTINGS

DOCS = Path(__file__).resolve().parent.parent / "docs"
MADE = re.compile(r"(<!-- made: ([\w-]+) -->\n)((?:\|.*\n)*)")
LAID_OUT_BY_HAND = {0: "Produce", 1: "Fetch", 18: "ApiVersions"}
"""The APIs that no registry has: their requests do not come through the schemas."""

Row = tuple[str, ...]


def broker_options() -> Iterator[Row]:
    """Every option of ``stratalog serve``, as a file and the environment write it."""
    meanings = attribute_docs(BrokerOptions)
    yield "option", "default", "meaning"
    for field in fields(BrokerOptions):
        default = "" if field.default is MISSING else f"`{_as_text(field.default)}`"
        yield f"`{field.name}`", default, meanings[field.name].replace("`None`", "`none`")
    kinds = get_type_hints(Logging)
    for field in fields(Logging):
        *others, last = (f"`{choice}`" for choice in get_args(kinds[field.name]))
        yield f"`{field.name}`", f"`{field.default}`", f"{', '.join(others)} or {last}."


def _as_text(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def broker_apis() -> Iterator[Row]:
    """The APIs of Kafka that clients are told of."""
    registry = served()
    yield "API", "key", "versions"
    for each in all_advertised(registry):
        api = registry.find(each.key, each.last)
        name = LAID_OUT_BY_HAND[each.key] if api is None else api.name
        versions = f"{each.first}" if each.first == each.last else f"{each.first} to {each.last}"
        yield name, f"{each.key}", versions


def topic_settings() -> Iterator[Row]:
    """The settings that a topic may be given."""
    yield "setting", "default", "here"
    for each in SETTINGS.values():
        yield f"`{each.name}`", f"`{each.default}`", each.meaning


def refused_settings() -> Iterator[Row]:
    """Kafka's other settings of topics, by the reason for which they are refused."""
    reasons: dict[str, list[str]] = {}
    for name, reason in NOT_SUPPORTED.items():
        reasons.setdefault(reason, []).append(f"`{name}`")
    yield "refused", "because"
    for reason, names in reasons.items():
        yield ", ".join(names), reason


def broker_metrics() -> Iterator[Row]:
    """What a fresh broker shows at `/metrics`."""

    async def found() -> list[Row]:
        with tempfile.TemporaryDirectory() as folder:
            options = BrokerOptions(data=Path(folder), listen="127.0.0.1:0", http=None)
            async with Broker.open(options) as broker:
                return [
                    (f"`{family.name}`", family.help)
                    for family in families_of(broker.context, usage())
                ]

    yield "metric", "what it tells"
    yield from asyncio.run(found())


TABLES: Mapping[str, Callable[[], Iterator[Row]]] = {
    "broker-apis": broker_apis,
    "broker-metrics": broker_metrics,
    "broker-options": broker_options,
    "refused-settings": refused_settings,
    "topic-settings": topic_settings,
}


def rendered(rows: Iterator[Row]) -> str:
    """The rows in Markdown; the first one is the head."""
    head, *rest = rows
    rule = "|---" * len(head) + "|\n"
    lines = [f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in (head, *rest)]
    return "".join([lines[0], rule, *lines[1:]])


def with_tables(page: str) -> str:
    """The text of a page, with its tables as the code has them."""
    return MADE.sub(lambda found: found[1] + rendered(TABLES[found[2]]()), page)


def pages() -> list[Path]:
    """The pages that have such tables."""
    return [path for path in sorted(DOCS.rglob("*.md")) if MADE.search(path.read_text("utf-8"))]


def main() -> int:
    for page in pages():
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
