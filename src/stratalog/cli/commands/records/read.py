"""`read` and `follow`: records on standard output.

On a terminal they come as text with their offset and time. In a pipe the bodies come alone, as
they were appended, because the next program wants them so; ``--format`` and ``--json`` say
otherwise.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.commands.records.formats import Format, encode
from stratalog.cli.parameters import AsJson, Url, Verbose, run, time_us
from stratalog.errors import Invalid

if TYPE_CHECKING:
    import pyarrow as pa

    from stratalog.objectlog import LogReader

FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help="text has offset, time and body; raw the bodies with a newline each. "
        "On a terminal text, else raw.",
    ),
]


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
    as_json: AsJson = False,
    verbose: Verbose = False,
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

    chosen = _choose(form, as_json)
    wide = limit is None and from_time is None and to_time is None

    async def work() -> None:
        async with LogReader.open(url, pin=pin, options=ReaderOptions(verify=verify)) as log:
            first, end = await _stretch(url, log, pin)
            start = first if from_offset is None else from_offset
            stop = end if to_offset is None else to_offset
            total = min(end, stop) - start if wide else None
            batches = log.batches(start, stop, from_time, to_time)
            shown = _is_file(sys.stdout.fileno) and not as_json
            with output.progress("reading", total, unit="records", shown=shown) as advance:
                done = 0
                async with aclosing(_limited(batches, limit)) as parts:
                    async for batch in parts:
                        output.write(encode(batch, chosen))
                        done += batch.num_rows
                        advance(done)

    run(work(), verbose=verbose)


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
    as_json: AsJson = False,
    verbose: Verbose = False,
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

    chosen = _choose(form, as_json)

    async def work() -> None:
        async with LogReader.open(url) as log:
            start = log.first_offset if from_start else from_offset
            async with aclosing(log.follow(start, idle_timeout_s=idle_timeout)) as batches:
                async for batch in batches:
                    output.write(encode(batch, chosen))
                    sys.stdout.flush()

    run(work(), verbose=verbose)


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


def _choose(form: Format | None, as_json: bool) -> Format:
    if as_json:
        if form not in (None, Format.JSON):
            raise Invalid(f"--json and --format {form} exclude each other", hint="Give one.")
        return Format.JSON
    if form is not None:
        return form
    return Format.TEXT if sys.stdout.isatty() else Format.RAW


def _is_file(fileno: Callable[[], int]) -> bool:
    """Whether the output goes to a file. In a pipe, a bar would disturb the next program."""
    try:
        return stat.S_ISREG(os.fstat(fileno()).st_mode)
    except OSError:
        return False
