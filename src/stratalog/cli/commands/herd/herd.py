"""`herd`: many logs under one root, and which of them have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.groups import Commands
from stratalog.cli.parameters import AGE_S, Dirty, Root, Server
from stratalog.cli.reply import Reply
from stratalog.store import redact

if TYPE_CHECKING:
    from stratalog.herd import RolledUp

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Letters, digits, dots, underscores, hyphens.")
]

herds = Commands(
    "herd",
    help="Many logs under one root, by name; and which of them have changed.",
)


@herds.command("create")
def create_log(root: Root, name: Name, *, reply: Reply) -> None:
    """Create a log in a herd.

    Example:
      stratalog herd create s3://bucket/shop orders-eu
    """

    async def work() -> str:
        from stratalog.herd import Herd

        async with Herd.open(root) as herd:
            return (await (await herd.create(name)).store()).url

    place = redact(reply.run(work()))
    reply.done({"name": name, "url": place}, f"created the log {name} at {place}")


@herds.command("where")
def find_log(root: Root, name: Name, *, reply: Reply) -> None:
    """Show where a log lies. The commands that read or look after a log take that place.

    What `stratalog append` puts there has no mark, so the pipeline does not find it: append to a
    log of a herd through the herd, in Python.

    Example:
      stratalog read $(stratalog herd where shop orders-eu)
    """

    async def work() -> str:
        from stratalog.herd import Herd

        async with Herd.open(root) as herd:
            return (await herd.log(name).store()).url

    place = redact(reply.run(work()))
    reply.done({"name": name, "url": place}, place)


@herds.command("list")
def list_logs(root: Root, *, reply: Reply) -> None:
    """Show the names of all logs of a herd.

    Example:
      stratalog herd list s3://bucket/shop
    """

    async def work() -> list[str]:
        from stratalog.herd import Herd

        async with Herd.open(root) as herd:
            return [name async for name in herd.names()]

    reply.result(reply.run(work()), list, output.say_all)


@herds.command("dirty")
def list_dirty(
    root: Root,
    worker: Server = "worker",
    *,
    dirty: Dirty,
    reply: Reply,
) -> None:
    """Find the logs that have changed since they were compacted.

    Reads the marks of all servers, puts back those of logs whose cursor
    `compaction` has not passed them, and deletes the rest. Logs that nobody
    wrote to cost nothing.

    Example:
      stratalog herd dirty s3://bucket/shop --records 1000 --age 1h
    """
    find_dirty(root, worker, dirty, reply)


def find_dirty(root: str, server: str, dirty: Dirty, reply: Reply) -> None:
    from stratalog.herd import RollUpOptions

    age_s = AGE_S if dirty.age is None else dirty.age
    options = RollUpOptions(age_s=age_s, records=dirty.records)

    async def work() -> RolledUp:
        from stratalog.herd import Herd, roll_up

        async with Herd.open(root, server=server) as herd:
            return await roll_up(herd, options=options)

    reply.result(reply.run(work()), lambda found: found, _show)


def _show(found: RolledUp) -> None:
    if found.dirty:
        titles = ("log", "records", "since", "put back", "selected")
        table = output.table(*titles, right=("records", "put back"))
        for log in found.dirty:
            table.add_row(
                log.log_id,
                f"{log.records:,}",
                output.moment(log.first_us),
                f"{log.reinsertions:,}",
                log.reason or "",
            )
        output.draw(table)
    output.say(
        f"{output.count(len(found.dirty), 'dirty log')}, {len(found.selected):,} selected; "
        f"{found.clean:,} clean, {found.gone:,} gone; {output.count(found.marks, 'mark')} read"
    )
    for trouble in found.troubles:
        output.warn(trouble)
