"""`cursor`: the named positions of a log, which hold back collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.help import Group
from stratalog.cli.parameters import AsJson, Url, Verbose, run
from stratalog.errors import Conflict

if TYPE_CHECKING:
    from stratalog.objectlog import Cursor, CursorStore

Name = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits and underscores.")]
Offset = Annotated[
    int, typer.Argument(metavar="OFFSET", min=1, help="The oldest offset that is still needed.")
]
ExpectedOffset = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Refuse unless the cursor is at N now."),
]

cursors = typer.Typer(
    cls=Group,
    name="cursor",
    no_args_is_help=True,
    help="Named positions in a log; nothing at or after a cursor is collected.",
)


@cursors.command("list")
def list_cursors(url: Url, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show all cursors of a log.

    Collection deletes nothing from the lowest of them on.

    Example:
      stratalog cursor list orders-log
    """

    async def work() -> list[Cursor]:
        return await _cursors_of(url).list()

    found = run(work(), verbose=verbose)
    if as_json:
        output.write_json([_facts(cursor) for cursor in found])
        return
    if not found:
        output.say("there are no cursors")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("name", "offset", "written", "by"):
        table.add_column(title, justify="right" if title == "offset" else "left")
    for cursor in found:
        table.add_row(
            cursor.name, f"{cursor.offset:,}", output.moment(cursor.epoch_us), cursor.writer
        )
    output.draw(table)


@cursors.command("create")
def create_cursor(
    url: Url, name: Name, offset: Offset, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """Create a cursor at an offset.

    Collection deletes nothing from there on, until the cursor is moved or deleted.

    Example:
      stratalog cursor create orders-log compaction 1000
    """

    async def work() -> Cursor:
        return await _cursors_of(url).create(name, offset)

    _tell("created", run(work(), verbose=verbose), as_json)


@cursors.command("move")
def move_cursor(
    url: Url,
    name: Name,
    offset: Offset,
    expected_offset: ExpectedOffset = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Move a cursor to another offset.

    Refused if somebody else changes it meanwhile, and with --expected-offset
    also if it is not where the caller last saw it.

    Example:
      stratalog cursor move orders-log compaction 2000 --expected-offset 1000
    """

    async def work() -> Cursor:
        return await (await _expected(url, name, expected_offset)).move(offset)

    _tell("moved", run(work(), verbose=verbose), as_json)


@cursors.command("delete")
def delete_cursor(
    url: Url,
    name: Name,
    expected_offset: ExpectedOffset = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Delete a cursor. What it held back may then be collected.

    Refused if somebody else changes it meanwhile.

    Example:
      stratalog cursor delete orders-log compaction
    """

    async def work() -> Cursor:
        cursor = await _expected(url, name, expected_offset)
        await cursor.delete()
        return cursor

    _tell("deleted", run(work(), verbose=verbose), as_json)


def _cursors_of(url: str) -> CursorStore:
    from stratalog.objectlog import CursorStore

    return CursorStore(url)


async def _expected(url: str, name: str, expected_offset: int | None) -> Cursor:
    """The cursor as it is now, which is the witness for the change."""
    cursor = await _cursors_of(url).load(name)
    if expected_offset is not None and cursor.offset != expected_offset:
        raise Conflict(
            f"the cursor {name!r} is at {cursor.offset}, not at {expected_offset}",
            hint="Look where it is with `stratalog cursor list`, then decide again.",
            expected=expected_offset,
            actual=cursor.offset,
        )
    return cursor


def _facts(cursor: Cursor) -> dict[str, object]:
    return {
        "name": cursor.name,
        "offset": cursor.offset,
        "epoch_us": cursor.epoch_us,
        "writer": cursor.writer,
    }


def _tell(done: str, cursor: Cursor, as_json: bool) -> None:
    if as_json:
        output.write_json({"done": done, **_facts(cursor)})
    else:
        where = "to" if done == "moved" else "at"
        output.say(f"{done} the cursor {cursor.name} {where} offset {cursor.offset}")
