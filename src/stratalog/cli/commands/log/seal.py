"""`seal` and `migrate`: let a log take no more records, and go on in another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.parameters import Url, place
from stratalog.cli.reply import Reply
from stratalog.store import open_store, redact

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
    facts = {"sealed_before": sealed_before, **seal_facts(state), **_end_facts(end)}
    reply.done(facts, text)


def migrate(
    url: Url,
    successor: Annotated[str, place("SUCCESSOR", "Where to go on. Nothing may be there yet.")],
    note: Note = "",
    *,
    reply: Reply,
) -> None:
    """Seal a log and go on in a new one, at the next offset.

    The place is checked before the log is sealed. Followers of the old log
    go on with the new one by themselves; writers get the new place with the
    error. A successor is named once. If the command is interrupted, run it
    again with the same places.

    Examples:
      stratalog migrate orders-log orders-log-2
      stratalog migrate s3://old/logs/orders s3://new/logs/orders
    """
    from stratalog.objectlog.branch import Sealer

    end = reply.run(Sealer(url).migrate(successor, note))
    before, after = redact(open_store(url).url), redact(open_store(successor).url)
    facts = {"url": before, "successor": after, **_end_facts(end)}
    reply.done(facts, f"the log is sealed; it goes on at {after} with offset {end.offset}")


def seal_facts(state: Seal) -> dict[str, object]:
    return {
        **output.fields_of(state, "sealed_us", "writer", "note"),
        "successor": None if state.successor is None else redact(state.successor.url),
    }


def _end_facts(end: LogPosition) -> dict[str, object]:
    return {"next_offset": end.offset, "timestamp_us": end.timestamp_us}
