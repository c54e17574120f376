"""`herd`: many logs under one root, and which of them have changed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.help import Group
from stratalog.cli.parameters import AsJson, Verbose, duration_s, lasting, run
from stratalog.store import redact

if TYPE_CHECKING:
    from stratalog.herd import RolledUp

AGE_S = 600.0

Root = Annotated[
    str,
    typer.Argument(
        metavar="ROOT",
        callback=lasting,
        help="The herd: a directory, or file://, s3://, gs:// or az://. "
        "Credentials come from the environment.",
    ),
]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Letters, digits, dots, underscores, hyphens.")
]

herds = typer.Typer(
    cls=Group,
    name="herd",
    no_args_is_help=True,
    help="Many logs under one root, by name; and which of them have changed.",
)


@herds.command("create")
def create_log(root: Root, name: Name, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Create a log in a herd.

    Example:
      stratalog herd create s3://bucket/shop orders-eu
    """

    async def work() -> str:
        from stratalog.herd import Herd

        async with Herd.open(root) as herd:
            return (await (await herd.create(name)).store()).url

    _tell_place("created", name, run(work(), verbose=verbose), as_json)


@herds.command("where")
def find_log(root: Root, name: Name, as_json: AsJson = False, verbose: Verbose = False) -> None:
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

    place = redact(run(work(), verbose=verbose))
    if as_json:
        output.write_json({"name": name, "url": place})
    else:
        output.say(place)


@herds.command("list")
def list_logs(root: Root, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show the names of all logs of a herd.

    Example:
      stratalog herd list s3://bucket/shop
    """

    async def work() -> list[str]:
        from stratalog.herd import Herd

        async with Herd.open(root) as herd:
            return [name async for name in herd.names()]

    names = run(work(), verbose=verbose)
    if as_json:
        output.write_json(names)
        return
    for name in names:
        output.say(name)


@herds.command("dirty")
def roll_up(
    root: Root,
    worker: Annotated[
        str, typer.Option(metavar="NAME", help="The name of this worker among the servers.")
    ] = "worker",
    age: Annotated[
        float | None,
        typer.Option(
            parser=duration_s,
            metavar="DURATION",
            help="Select what has been dirty for so long.",
            show_default="10m",
        ),
    ] = None,
    records: Annotated[
        int, typer.Option(metavar="N", min=1, help="Select what has so many records waiting.")
    ] = 10_000,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Find the logs that have changed since they were compacted.

    Reads the marks of all servers, puts back those of logs whose cursor
    `compaction` has not passed them, and deletes the rest. Logs that nobody
    wrote to cost nothing.

    Example:
      stratalog herd dirty s3://bucket/shop --records 1000 --age 1h
    """
    from stratalog.herd import RollUpOptions

    age_s = AGE_S if age is None else age
    options = RollUpOptions(age_s=age_s, records=records)

    async def work() -> RolledUp:
        from stratalog.herd import Herd
        from stratalog.herd import roll_up as find

        async with Herd.open(root, server=worker) as herd:
            return await find(herd, options=options)

    found = run(work(), verbose=verbose)
    if as_json:
        output.write_json({**asdict(found), "dirty": [asdict(each) for each in found.dirty]})
    else:
        _draw(found)


def _tell_place(done: str, name: str, url: str, as_json: bool) -> None:
    place = redact(url)
    if as_json:
        output.write_json({"name": name, "url": place})
    else:
        output.say(f"{done} the log {name} at {place}")


def _draw(found: RolledUp) -> None:
    from rich.table import Table

    if found.dirty:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in ("log", "records", "since", "put back", "selected"):
            table.add_column(title, justify="right" if title in ("records", "put back") else "left")
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
        output.complain("warning", "yellow", redact(trouble))
