"""`append`: the records of a file or of standard input, in their order.

The input is cut into batches of whatever one read gives, so records from a slow pipe are appended
as they come and a large file fills whole fragments. Several batches are under way at once; memory
is bounded by their number. The command says what was appended, even if it fails or is interrupted.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.commands.records.framing import LengthPrefixed, Lines, Splitter
from stratalog.cli.commands.records.input import Source, chunks, open_source
from stratalog.cli.groups import option
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply
from stratalog.errors import Fenced, Invalid, StratalogError
from stratalog.ordered import OrderedTasks

if TYPE_CHECKING:
    from stratalog.objectlog import LogWriter, Span, WriterOptions

BATCHES_UNDER_WAY_MAX = 64


@dataclass(frozen=True, slots=True)
class Form:
    length_prefixed: bool = option(
        "Each record comes behind its length (u32, big-endian); not lines.", default=False
    )
    expected_offset: int | None = option(
        "Append only if the log ends at N, and without a record of others in between.",
        metavar="N",
        min=1,
    )
    atomic: bool = option("All of the input or nothing (up to 64 MiB).", default=False)


def append(
    url: Url,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The input; standard input if none or -."),
    ] = None,
    *,
    form: Form,
    reply: Reply,
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

    options = WriterOptions(on_fenced="reopen" if form.expected_offset is None else "raise")
    make = LengthPrefixed if form.length_prefixed else Lines
    splitter = make(options.record_bytes_max)
    with open_source(file) as source:
        if source.interactive and not reply.as_json:
            output.complain("reading", "cyan", "lines from the terminal; Ctrl-D ends the input")
        reply.run(_append(url, source, splitter, options, form, reply))


async def _append(
    url: str,
    source: Source,
    splitter: Splitter,
    options: WriterOptions,
    form: Form,
    reply: Reply,
) -> None:
    from stratalog.objectlog import LogWriter

    async with LogWriter.open(url, options=options) as log:
        appends = OrderedAppends(log, form.expected_offset)
        complete = False
        try:
            shown = not (reply.as_json or source.interactive)
            with output.progress("appending", source.size, unit="bytes", shown=shown) as advance:
                batches = _batches(source, splitter, advance)
                if form.atomic:
                    batches = _as_one(batches, options.batch_bytes_max)
                async with aclosing(batches):
                    async for bodies in batches:
                        await appends.send(bodies)
                await appends.finish()
            complete = True
        except Fenced as error:
            error.hint = "Look where the log ends with `stratalog info`, then decide again."
            raise
        finally:
            await appends.settle()
            # Failing to print must not hide the failure that is to be reported.
            with contextlib.nullcontext() if complete else contextlib.suppress(OSError):
                _show(appends.appended, complete, reply)


async def _batches(
    source: Source, splitter: Splitter, advance: output.Advance
) -> AsyncGenerator[list[bytes], None]:
    """The records that each read completes. A torn end raises after those before it were sent."""
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
class Appended:
    """What became of the input so far: its first records, and any that landed beyond a failure."""

    records: int = 0
    bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    beyond_failure: int = 0


class OrderedAppends:
    """Batches under way in the order of the input."""

    def __init__(self, log: LogWriter, expected_offset: int | None) -> None:
        self._log = log
        self._expected_offset = expected_offset
        self._under_way: OrderedTasks[tuple[Span, int]] = OrderedTasks(BATCHES_UNDER_WAY_MAX)
        self._failed = False
        self.appended = Appended()

    async def send(self, bodies: list[bytes]) -> None:
        """Start to append a batch; wait if too many are under way."""
        while self._under_way.is_ready or not self._under_way.has_room():
            await self._settle_first()
        self._under_way.start(self._append(bodies, self._expected_offset))
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

    async def _append(self, bodies: list[bytes], expected_offset: int | None) -> tuple[Span, int]:
        span = await self._log.append_many(bodies, expected_offset=expected_offset)
        return span, sum(map(len, bodies))

    async def _settle_first(self) -> None:
        await self._under_way.wait()
        try:
            span, size = await self._under_way.take()
        except StratalogError:
            self._failed = True
            raise
        appended = self.appended
        if self._failed:
            appended.beyond_failure += span.count
            return
        if appended.first_offset is None:
            appended.first_offset = span.first.offset
        appended.last_offset = span.limit - 1
        appended.records += span.count
        appended.bytes += size


def _show(appended: Appended, complete: bool, reply: Reply) -> None:
    if appended.records:
        first = "" if complete else "the first "
        text = (
            f"appended {first}{output.count(appended.records, 'record')} "
            f"({output.size(appended.bytes)}), "
            f"offsets {appended.first_offset} to {appended.last_offset}"
        )
    else:
        text = "nothing was appended" if complete else "nothing of the input was appended"
    reply.done({**asdict(appended), "complete": complete}, text)
    if appended.beyond_failure and not reply.as_json:
        beyond = output.count(appended.beyond_failure, "record")
        output.warn(f"{beyond} after the failure landed too")
