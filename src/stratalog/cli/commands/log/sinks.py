"""`sinks`: which queries write to a log in numbered batches, and how far they are."""

from typing import Annotated

import typer

from stratalog.cli.groups import Commands
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply
from stratalog.errors import NotFound
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import PatientStore, open_store

sinks = Commands(
    "sinks",
    help="Queries that write in numbered batches: a stream of Spark, for example.",
)


@sinks.command("list")
def list_sinks(url: Url, *, reply: Reply) -> None:
    """Show all queries that the log remembers, with the last batch of each.

    Example:
      stratalog sinks list orders-log
    """

    async def work() -> list[tuple[str, int]]:
        from stratalog.objectlog.bulk import LINK_TIMEOUT_S
        from stratalog.objectlog.stored import load_manifest

        store = PatientStore(open_store(url), DEFAULT_RUNTIME, LINK_TIMEOUT_S)
        manifest, _ = await load_manifest(store)
        return sorted((manifest.sinks or {}).items())

    reply.listing(
        reply.run(work()),
        lambda each: {"query": each[0], "batch": each[1]},
        lambda each: (each[0], f"{each[1]:,}"),
        columns=("query", "last batch"),
        right=("last batch",),
        empty="no query writes to this log in batches",
    )


@sinks.command("forget")
def forget_sink(
    url: Url,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Its id, as `list` shows it.")],
    *,
    reply: Reply,
) -> None:
    """Make room for another query. A log remembers 256.

    Only for a query that is gone for good: if it still runs, or is started again from its
    checkpoint, a batch may be written twice.

    Example:
      stratalog sinks forget orders-log 699f32c9-bea1-4c12-9ccb-88dcce7d263c
    """

    async def work() -> None:
        from stratalog.objectlog.bulk import forget_query

        if not await forget_query(url, query):
            raise NotFound(f"the log knows no query {query!r}", hint="See `stratalog sinks list`.")

    reply.run(work())
    reply.done({"forgotten": query}, f"forgot {query}")
