"""`seal`: let a log take no more records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply
from stratalog.store import redact

if TYPE_CHECKING:
    from stratalog.objectlog.stored import LogPosition, Seal

Note = Annotated[
    str, typer.Option("--note", metavar="TEXT", help="Why, for those who look at the log later.")
]


def seal(url: Url, note: Note = "", *, reply: Reply) -> None:
    """Let a log take no more records. This cannot be undone.

    What was appended before stays readable; every later append fails as
    sealed. A log that is sealed already stays as it is. See also migrate.

    Examples:
      stratalog seal orders-log
      stratalog seal orders-log --note "moved to the other bucket"
    """
    from stratalog.objectlog.branch import Sealer

    sealer = Sealer(url)

    async def work() -> tuple[bool, LogPosition, Seal | None]:
        before = await sealer.state()
        return before is not None, await sealer.seal(note), await sealer.state()

    sealed_before, end, state = reply.run(work())
    assert state is not None
    already = " already" if sealed_before else ""
    text = f"the log is{already} sealed; it ends at offset {end.offset}"
    if state.successor is not None:
        text += f"\nit goes on at {redact(state.successor.url)}"
    facts = {"sealed_before": sealed_before, **seal_facts(state), **end_facts(end)}
    reply.done(facts, text)


def seal_facts(state: Seal) -> dict[str, object]:
    return {
        **output.fields_of(state, "sealed_us", "writer", "note"),
        "successor": None if state.successor is None else redact(state.successor.url),
    }


def end_facts(end: LogPosition) -> dict[str, object]:
    return {"next_offset": end.offset, "timestamp_us": end.timestamp_us}
