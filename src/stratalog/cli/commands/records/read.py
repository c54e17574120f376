"""`read`: records on standard output, up to where the log ends."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.commands.records.formats import FormatOption, choose, encode
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply
from stratalog.cli.values import time_us

if TYPE_CHECKING:
    import pyarrow as pa

    from stratalog.objectlog import LogReader


def read(
    url: Url,
    from_offset: Annotated[
        int | None, typer.Option("--from", metavar="N", min=1, help="The first offset.")
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to", metavar="N", min=1, help="Stop before this offset.")
    ] = None,
    from_time: Annotated[
        int | None,
        typer.Option(
            parser=time_us,
            metavar="TIME",
            help="Only what was appended at or after it: ISO (UTC if it names no zone), "
            "or microseconds since 1970.",
        ),
    ] = None,
    to_time: Annotated[
        int | None,
        typer.Option(parser=time_us, metavar="TIME", help="Only what was appended before it."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="At most so many records.")
    ] = None,
    pin: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What this pin holds, also if the log begins later now."),
    ] = None,
    form: FormatOption = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify", help="Hash every record and compare with the log's setsum."
        ),
    ] = True,
    *,
    reply: Reply,
) -> None:
    """Print records, oldest first, up to where the log ends now.

    In a pipe the bodies come alone, a line each. For bodies that hold newlines
    or no text, use --json or --format length-prefixed.

    Examples:
      stratalog read orders-log --from 1000 --limit 10
      stratalog read orders-log | wc -l
      stratalog read orders-log --pin training_7
      stratalog read orders-log --json --from-time 2026-01-31T12:00:00Z | jq .body
    """
    from stratalog.objectlog import LogReader, ReaderOptions

    chosen = choose(form, reply)
    wide = limit is None and from_time is None and to_time is None

    async def work() -> None:
        async with LogReader.open(url, pin=pin, options=ReaderOptions(verify=verify)) as log:
            first, end = await _stretch(url, log, pin)
            start = first if from_offset is None else from_offset
            stop = end if to_offset is None else to_offset
            total = min(end, stop) - start if wide else None
            batches = log.batches(start, stop, from_time, to_time)
            shown = _is_file(sys.stdout.fileno) and not reply.as_json
            with output.progress("reading", total, unit="records", shown=shown) as advance:
                done = 0
                async with aclosing(_limited(batches, limit)) as parts:
                    async for batch in parts:
                        output.write(encode(batch, chosen))
                        done += batch.num_rows
                        advance(done)

    reply.run(work())


async def _stretch(url: str, log: LogReader, pin: str | None) -> tuple[int, int]:
    """Where the records begin and end. A pin holds whole fragments, so more than it names."""
    if pin is None:
        return log.first_offset, log.tail
    from stratalog.objectlog.holds import PinStore

    held = await PinStore(url).load(pin)
    return held.from_offset, held.to_offset


async def _limited(
    batches: AsyncGenerator[pa.RecordBatch, None], limit: int | None
) -> AsyncGenerator[pa.RecordBatch, None]:
    """The batches until there were so many records."""
    async with aclosing(batches):
        async for batch in batches:
            if limit is not None:
                batch = batch.slice(0, limit)
                limit -= batch.num_rows
            yield batch
            if limit == 0:
                return


def _is_file(fileno: Callable[[], int]) -> bool:
    """Whether the output goes to a file. In a pipe, a bar would disturb the next program."""
    try:
        return stat.S_ISREG(os.fstat(fileno()).st_mode)
    except OSError:
        return False
