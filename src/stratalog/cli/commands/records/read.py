"""`read` and `follow`: records on standard output, to where the log ends or as they come."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stratalog.cli import output
from stratalog.cli.commands.records.formats import FormatOption, choose, encode
from stratalog.cli.groups import option
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply
from stratalog.cli.values import time_us
from stratalog.errors import Invalid

if TYPE_CHECKING:
    import pyarrow as pa

    from stratalog.objectlog import LogReader


@dataclass(frozen=True, slots=True)
class Stretch:
    from_offset: int | None = option("The first offset.", "--from", metavar="N", min=1)
    to_offset: int | None = option("Stop before this offset.", "--to", metavar="N", min=1)
    from_time: int | None = option(
        "Only what was appended at or after it: ISO (UTC if it names no zone), "
        "or microseconds since 1970.",
        parser=time_us,
        metavar="TIME",
    )
    to_time: int | None = option(
        "Only what was appended before it.", parser=time_us, metavar="TIME"
    )
    limit: int | None = option("At most so many records.", metavar="N", min=1)
    pin: str | None = option(
        "What this pin holds, also if the log begins later now.", metavar="NAME"
    )


def read(
    url: Url,
    *,
    stretch: Stretch,
    form: FormatOption = None,
    verify: bool = option(
        "Compare the bytes of each fragment with its digest.", "--verify/--no-verify", default=True
    ),
    verify_records: bool = option(
        "Also hash every record and compare with the log's setsum.",
        "--verify-records",
        default=False,
    ),
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
    if verify_records and not verify:
        raise Invalid("--verify-records and --no-verify exclude each other", hint="Leave one out.")

    async def work() -> None:
        options = ReaderOptions(verify="records" if verify_records else verify)
        async with LogReader.open(url, pin=stretch.pin, options=options) as log:
            start, stop, total = await _bounds(url, log, stretch)
            batches = log.batches(start, stop, stretch.from_time, stretch.to_time)
            shown = _is_file() and not reply.as_json
            with output.progress("reading", total, unit="records", shown=shown) as advance:
                done = 0
                async with aclosing(_limited(batches, stretch.limit)) as parts:
                    async for batch in parts:
                        output.write(encode(batch, chosen))
                        done += batch.num_rows
                        advance(done)

    reply.run(work())


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


async def _bounds(url: str, log: LogReader, stretch: Stretch) -> tuple[int, int, int | None]:
    """Where to begin, where to stop, and how many records that is, if it is known."""
    first, end = await _held(url, log, stretch.pin)
    start = first if stretch.from_offset is None else stretch.from_offset
    stop = end if stretch.to_offset is None else stretch.to_offset
    filters = (stretch.limit, stretch.from_time, stretch.to_time)
    return start, stop, min(end, stop) - start if filters == (None, None, None) else None


async def _held(url: str, log: LogReader, pin: str | None) -> tuple[int, int]:
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


def _is_file() -> bool:
    """Whether the output goes to a file. In a pipe, a bar would disturb the next program."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:
        return False
