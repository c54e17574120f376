"""`seal` and `migrate`: let a log take no more records, and go on elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.parameters import AsJson, Url, Verbose, lasting, run
from stratalog.store import open_store, redact

if TYPE_CHECKING:
    from stratalog.objectlog.stored import LogPosition, Seal

Note = Annotated[
    str, typer.Option("--note", metavar="TEXT", help="Why, for whoever looks at the log later.")
]


def seal(url: Url, note: Note = "", as_json: AsJson = False, verbose: Verbose = False) -> None:
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

    sealed_before, end, state = run(work(), verbose=verbose)
    assert state is not None
    if as_json:
        output.write_json({"sealed_before": sealed_before, **seal_facts(state), **_end(end)})
        return
    already = " already" if sealed_before else ""
    output.say(f"the log is{already} sealed; it ends at offset {end.offset}")
    if state.successor is not None:
        output.say(f"it goes on at {redact(state.successor.url)}")


def migrate(
    url: Url,
    successor: Annotated[
        str,
        typer.Argument(
            metavar="SUCCESSOR", callback=lasting, help="Where to go on. Nothing may be there yet."
        ),
    ],
    note: Note = "",
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Seal a log and go on in a new one, at the next offset.

    The place is checked before the log is sealed. Whoever follows the old log
    goes on with the new one by itself; writers get the new place with the
    error. A successor is named once. If the command is interrupted, run it
    again with the same places.

    Examples:
      stratalog migrate orders-log orders-log-2
      stratalog migrate s3://old/logs/orders s3://new/logs/orders
    """
    from stratalog.objectlog.branch import Sealer

    end = run(Sealer(url).migrate(successor, note), verbose=verbose)
    place = redact(open_store(successor).url)
    if as_json:
        output.write_json({"url": redact(open_store(url).url), "successor": place, **_end(end)})
    else:
        output.say(f"the log is sealed; it goes on at {place} with offset {end.offset}")


def seal_facts(state: Seal) -> dict[str, object]:
    """What a seal says."""
    return {
        "sealed_us": state.sealed_us,
        "writer": state.writer,
        "note": state.note,
        "successor": None if state.successor is None else redact(state.successor.url),
    }


def _end(end: LogPosition) -> dict[str, object]:
    return {"next_offset": end.offset, "timestamp_us": end.timestamp_us}
