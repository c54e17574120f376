"""`sinks`: which queries write to a log in numbered batches, and how far they are."""

from __future__ import annotations

from typing import Annotated

import typer

from stratalog.cli import output
from stratalog.cli.help import Group
from stratalog.cli.parameters import AsJson, Url, Verbose, run
from stratalog.errors import NotFound
from stratalog.runtime import DEFAULT_RUNTIME

sinks = typer.Typer(
    cls=Group,
    name="sinks",
    no_args_is_help=True,
    help="Queries that write in numbered batches: a stream of Spark, for example.",
)


@sinks.command("list")
def list_sinks(url: Url, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show all queries that the log remembers, with the last batch of each.

    Example:
      stratalog sinks list orders-log
    """

    async def work() -> dict[str, int]:
        from stratalog.objectlog.load import LINK_TIMEOUT_S
        from stratalog.objectlog.stored import load_manifest
        from stratalog.store import PatientStore, open_store

        store = PatientStore(open_store(url), DEFAULT_RUNTIME, LINK_TIMEOUT_S)
        manifest, _ = await load_manifest(store)
        return dict(manifest.sinks or {})

    found = run(work(), verbose=verbose)
    if as_json:
        output.write_json([{"query": query, "batch": found[query]} for query in sorted(found)])
        return
    if not found:
        output.say("no query writes to this log in batches")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("query")
    table.add_column("last batch", justify="right")
    for query in sorted(found):
        table.add_row(query, f"{found[query]:,}")
    output.draw(table)


@sinks.command("forget")
def forget_sink(
    url: Url,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Its id, as `list` shows it.")],
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Make room for another query. A log remembers 256.

    Only for a query that is gone for good: if it still runs, or is started again from its
    checkpoint, a batch may be written twice.

    Example:
      stratalog sinks forget orders-log 699f32c9-bea1-4c12-9ccb-88dcce7d263c
    """

    async def work() -> None:
        from stratalog.objectlog.load import forget_query

        if not await forget_query(url, query):
            raise NotFound(f"the log knows no query {query!r}", hint="See `stratalog sinks list`.")

    run(work(), verbose=verbose)
    if as_json:
        output.write_json({"forgotten": query})
    else:
        output.say(f"forgot {query}")
