"""`cursor`: the named positions of a log, which hold back collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.groups import Commands
from stratalog.cli.parameters import Name, Url
from stratalog.cli.reply import Reply
from stratalog.errors import Conflict

if TYPE_CHECKING:
    from stratalog.objectlog import Cursor, CursorStore

Offset = Annotated[
    int, typer.Argument(metavar="OFFSET", min=1, help="The oldest offset that is still needed.")
]
ExpectedOffset = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Refuse unless the cursor is at N now."),
]

cursors = Commands(
    "cursor",
    help="Named positions in a log; nothing at or after a cursor is collected.",
)


@cursors.command("list")
def list_cursors(url: Url, *, reply: Reply) -> None:
    """Show all cursors of a log.

    Collection deletes nothing from the lowest of them on.

    Example:
      stratalog cursor list orders-log
    """
    reply.listing(
        reply.run(_cursors_of(url).list()),
        _facts,
        _row,
        columns=("name", "offset", "written", "by"),
        right=("offset",),
        empty="there are no cursors",
    )


@cursors.command("create")
def create_cursor(url: Url, name: Name, offset: Offset, *, reply: Reply) -> None:
    """Create a cursor at an offset.

    Collection deletes nothing from there on, until the cursor is moved or deleted.

    Example:
      stratalog cursor create orders-log compaction 1000
    """
    _reply("created", reply.run(_cursors_of(url).create(name, offset)), reply)


@cursors.command("move")
def move_cursor(
    url: Url,
    name: Name,
    offset: Offset,
    expected_offset: ExpectedOffset = None,
    *,
    reply: Reply,
) -> None:
    """Move a cursor to another offset.

    Refused if somebody else changes it meanwhile, and with --expected-offset
    also if it is not where the caller last saw it.

    Example:
      stratalog cursor move orders-log compaction 2000 --expected-offset 1000
    """

    async def work() -> Cursor:
        return await (await _expected(url, name, expected_offset)).move(offset)

    _reply("moved", reply.run(work()), reply)


@cursors.command("delete")
def delete_cursor(
    url: Url,
    name: Name,
    expected_offset: ExpectedOffset = None,
    *,
    reply: Reply,
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

    _reply("deleted", reply.run(work()), reply)


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
    return output.fields_of(cursor, "name", "offset", "epoch_us", "writer")


def _reply(done: str, cursor: Cursor, reply: Reply) -> None:
    where = "to" if done == "moved" else "at"
    text = f"{done} the cursor {cursor.name} {where} offset {cursor.offset}"
    reply.done({"done": done, **_facts(cursor)}, text)


def _row(cursor: Cursor) -> tuple[str, ...]:
    return cursor.name, f"{cursor.offset:,}", output.moment(cursor.epoch_us), cursor.writer
