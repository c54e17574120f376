"""`follow`: records on standard output, as they are appended."""

import sys
from contextlib import aclosing
from typing import Annotated

import typer

from stratalog.cli import output
from stratalog.cli.commands.records.formats import FormatOption, choose, encode
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply
from stratalog.errors import Invalid


def follow(
    url: Url,
    from_offset: Annotated[
        int | None, typer.Option("--from", metavar="N", min=1, help="Begin at this offset.")
    ] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin with the oldest record.")
    ] = False,
    idle_timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="End when nothing came for so long."),
    ] = None,
    form: FormatOption = None,
    *,
    reply: Reply,
) -> None:
    """Print records as they are appended, until Ctrl-C.

    Begins with what comes next, unless told otherwise.

    Examples:
      stratalog follow orders-log
      stratalog follow orders-log --from-start --json | jq --unbuffered .body
      stratalog follow orders-log --from 1000 --idle-timeout 5
    """
    if from_start and from_offset is not None:
        raise Invalid("--from and --from-start exclude each other", hint="Give one of them.")
    from stratalog.objectlog import LogReader

    chosen = choose(form, reply)

    async def work() -> None:
        async with LogReader.open(url) as log:
            start = log.first_offset if from_start else from_offset
            async with aclosing(log.follow(start, idle_timeout_s=idle_timeout)) as batches:
                async for batch in batches:
                    output.write(encode(batch, chosen))
                    sys.stdout.flush()

    reply.run(work())
