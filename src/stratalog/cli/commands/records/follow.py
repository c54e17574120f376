"""`follow`: records on standard output, as they are appended."""

import sys
from contextlib import aclosing

from stratalog.cli import output
from stratalog.cli.commands.records.formats import FormatOption, choose, encode
from stratalog.cli.groups import option
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply
from stratalog.errors import Invalid


def follow(
    url: Url,
    from_offset: int | None = option("Begin at this offset.", "--from", metavar="N", min=1),
    from_start: bool = option("Begin with the oldest record.", default=False),
    idle_timeout: float | None = option(
        "End when nothing came for so long.", metavar="SECONDS", min=0
    ),
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
