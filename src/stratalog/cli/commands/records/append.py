"""`append`: the records of a file or of standard input, in their order.

The input is cut into batches of whatever one read gives, so records from a slow pipe are appended
as they come and a large file fills whole fragments. Several batches are under way at once; memory
is bounded by their number. What was appended is told even if the command fails or is interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.commands.records.framing import LengthPrefixed, Lines, Splitter
from stratalog.cli.commands.records.input import Source, chunks, open_source
from stratalog.cli.parameters import AsJson, Url, Verbose, run
from stratalog.errors import Fenced, Invalid, StratalogError

if TYPE_CHECKING:
    from stratalog.objectlog import LogWriter, Span, WriterOptions

BATCHES_UNDER_WAY_MAX = 64


def append(
    url: Url,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The input; standard input if none or -."),
    ] = None,
    length_prefixed: Annotated[
        bool,
        typer.Option(
            "--length-prefixed",
            help="Each record comes behind its length (u32, big-endian); not lines.",
        ),
    ] = False,
    expected_offset: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Append only if the log ends at N, and without a record of others in between.",
        ),
    ] = None,
    atomic: Annotated[
        bool, typer.Option("--atomic", help="All of the input or nothing (up to 64 MiB).")
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Append records: each line of a file or of standard input is one.

    Records are durable when the command ends. A newline is no part of its
    record. If the command fails, it says how much of the input was appended.

    Examples:
      stratalog append orders-log orders.jsonl
      tail -F service.log | stratalog append s3://bucket/logs/service
      stratalog append orders-log --length-prefixed --atomic < batch.bin
    """
    from stratalog.objectlog import WriterOptions

    options = WriterOptions(on_fenced="reopen" if expected_offset is None else "raise")
    make = LengthPrefixed if length_prefixed else Lines
    splitter = make(options.record_bytes_max)
    with open_source(file) as source:
        if source.interactive and not as_json:
            output.complain("reading", "cyan", "lines from the terminal; Ctrl-D ends the input")
        work = _append(url, source, splitter, options, expected_offset, atomic, as_json)
        run(work, verbose=verbose)


async def _append(
    url: str,
    source: Source,
    splitter: Splitter,
    options: WriterOptions,
    expected_offset: int | None,
    atomic: bool,
    as_json: bool,
) -> None:
    from stratalog.objectlog import LogWriter

    async with LogWriter.open(url, options=options) as log:
        pipeline = Pipeline(log, expected_offset)
        complete = False
        try:
            with output.progress(
                "appending", source.size, unit="bytes", shown=not (as_json or source.interactive)
            ) as advance:
                batches = _batches(source, splitter, advance)
                if atomic:
                    batches = _as_one(batches, options.batch_bytes_max)
                async with aclosing(batches):
                    async for bodies in batches:
                        await pipeline.send(bodies)
                await pipeline.finish()
            complete = True
        except Fenced as error:
            error.hint = "Look where the log ends with `stratalog info`, then decide again."
            raise
        finally:
            await pipeline.settle()
            # Being unable to tell must not hide the failure that is to be told.
            with contextlib.nullcontext() if complete else contextlib.suppress(OSError):
                _tell(pipeline.outcome, complete, as_json)


async def _batches(
    source: Source, splitter: Splitter, advance: output.Advance
) -> AsyncGenerator[list[bytes], None]:
    """What each read completes. A torn end is told after the records before it were sent."""
    done = 0
    async with aclosing(chunks(source)) as pieces:
        async for chunk in pieces:
            bodies = splitter.feed(chunk)
            if bodies:
                yield bodies
            done += len(chunk)
            advance(done)
    bodies = splitter.end()
    if bodies:
        yield bodies


async def _as_one(
    batches: AsyncGenerator[list[bytes], None], bytes_max: int
) -> AsyncGenerator[list[bytes], None]:
    """All batches as one, or ``Invalid`` before more than that is held in memory."""
    from stratalog.objectlog import RECORD_OVERHEAD_BYTES

    everything: list[bytes] = []
    size = 0
    async for bodies in batches:
        everything.extend(bodies)
        size += sum(map(len, bodies)) + RECORD_OVERHEAD_BYTES * len(bodies)
        if size > bytes_max:
            raise Invalid(
                f"the input is larger than one atomic append of {output.size(bytes_max)}",
                hint="Append it without --atomic, or in parts with --expected-offset.",
                expected=bytes_max,
            )
    if everything:
        yield everything


@dataclass(slots=True)
class Outcome:
    """What became of the input so far: its first records, and any that landed beyond a failure."""

    records: int = 0
    bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    beyond_failure: int = 0


class Pipeline:
    """Batches under way in the order of the input."""

    def __init__(self, log: LogWriter, expected_offset: int | None) -> None:
        self._log = log
        self._expected_offset = expected_offset
        self._under_way: deque[tuple[asyncio.Task[Span], int]] = deque()
        self._failed = False
        self.outcome = Outcome()

    async def send(self, bodies: list[bytes]) -> None:
        """Start to append a batch; wait if too many are under way."""
        while self._under_way and (
            self._under_way[0][0].done() or len(self._under_way) >= BATCHES_UNDER_WAY_MAX
        ):
            await self._settle_first()
        task = asyncio.ensure_future(
            self._log.append_many(bodies, expected_offset=self._expected_offset)
        )
        self._under_way.append((task, sum(map(len, bodies))))
        if self._expected_offset is not None:
            self._expected_offset += len(bodies)

    async def finish(self) -> None:
        """Wait for everything that was sent; raises the first failure."""
        while self._under_way:
            await self._settle_first()

    async def settle(self) -> None:
        """Wait for everything after a failure, and count what was appended nevertheless."""
        while self._under_way:
            with contextlib.suppress(StratalogError):
                await self._settle_first()

    async def _settle_first(self) -> None:
        task, size = self._under_way[0]
        # Waiting leaves the task alone when this caller is cancelled; awaiting it would not.
        await asyncio.wait([task])
        self._under_way.popleft()
        try:
            span = task.result()
        except StratalogError:
            self._failed = True
            raise
        outcome = self.outcome
        if self._failed:
            outcome.beyond_failure += span.count
            return
        if outcome.first_offset is None:
            outcome.first_offset = span.first.offset
        outcome.last_offset = span.limit - 1
        outcome.records += span.count
        outcome.bytes += size


def _tell(outcome: Outcome, complete: bool, as_json: bool) -> None:
    if as_json:
        output.write_json(
            {
                "records": outcome.records,
                "bytes": outcome.bytes,
                "first_offset": outcome.first_offset,
                "last_offset": outcome.last_offset,
                "beyond_failure": outcome.beyond_failure,
                "complete": complete,
            }
        )
        return
    if not outcome.records:
        output.say("nothing was appended" if complete else "nothing of the input was appended")
    else:
        what = output.count(outcome.records, "record")
        first = "" if complete else "the first "
        output.say(
            f"appended {first}{what} ({output.size(outcome.bytes)}), "
            f"offsets {outcome.first_offset} to {outcome.last_offset}"
        )
    if outcome.beyond_failure:
        output.complain(
            "warning",
            "yellow",
            f"{output.count(outcome.beyond_failure, 'record')} after the failure landed too",
        )
