"""`cost`: what a log has stored, by class, and what a month of it costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from stratalog.cli import output
from stratalog.cli.parameters import AsJson, Url, Verbose, run
from stratalog.errors import Denied, Invalid, NotFound
from stratalog.store import redact

if TYPE_CHECKING:
    from stratalog.objectlog.cost import Bill, Stored
    from stratalog.store import Usage

T = TypeVar("T")


def cost(
    url: Url,
    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The provider's prices, as JSON or TOML."),
    ] = None,
    stats: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Stats that a writer or reader has left, as JSON; several add up."
        ),
    ] = None,
    appends_per_second: Annotated[
        float, typer.Option(metavar="N", min=0, help="How many appends to expect, on average.")
    ] = 0.0,
    append_bytes: Annotated[int, typer.Option(metavar="BYTES", min=0, help="Their mean size.")] = 0,
    interval_s: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0, help="WriterOptions.interval_s, which caps the requests."
        ),
    ] = 0.0,
    followers: Annotated[
        int, typer.Option(metavar="N", min=0, help="How many readers follow.")
    ] = 0,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Measure what a log has stored, and what a month of it costs.

    Lists the log and changes nothing. Requests are counted by class: A for puts
    and listings, B for reads. They come from what a program has measured
    (--stats), or from rates, which give an upper bound. What the bill looks like
    depends on the provider: check the prices.

    Examples:
      stratalog cost orders-log
      stratalog cost s3://bucket/orders --prices s3.toml --stats writer.json
      stratalog cost orders-log --prices s3.toml --appends-per-second 50 --interval-s 1
    """
    from stratalog.objectlog.cost import (
        Measured,
        Prices,
        Rates,
        bill,
        measure_storage,
        storage_cost,
    )
    from stratalog.store import Usage

    listed = None if prices is None else _read(prices, Prices.from_text)
    usages = [_read(file, Measured.from_json).a_month for file in stats or ()]
    if appends_per_second or followers:
        rates = Rates(
            appends_per_second=appends_per_second,
            append_bytes=append_bytes,
            interval_s=interval_s,
            followers=followers,
        )
        usages.append(rates.a_month)
    usage = sum(usages, Usage()) if usages else None

    async def work() -> Stored:
        with output.progress("listing", None, unit="objects", shown=not as_json) as advance:
            return await measure_storage(url, on_progress=advance)

    stored = run(work(), verbose=verbose)
    made = None if listed is None else bill(listed, stored.total.bytes, usage)
    if as_json:
        output.write_json(
            {
                "url": redact(stored.url),
                "stored": stored.amounts,
                "total": stored.total,
                "usage_per_month": usage,
                "bill": made,
                "cost_per_month": None if made is None else made.total,
            }
        )
        return
    _draw_stored(stored, {} if listed is None else storage_cost(listed, stored))
    if made is not None:
        _draw_bill(made)
    elif usage is not None:
        _draw_usage(usage)


def _read(file: Path, decode: Callable[[bytes], T]) -> T:
    """What a file holds; errors name it."""
    try:
        return decode(file.read_bytes())
    except FileNotFoundError:
        raise NotFound(
            f"there is no file {file}", hint="Check the name of the file.", path=str(file)
        ) from None
    except PermissionError:
        raise Denied(
            f"cannot read {file}", hint="Check the permissions of the file.", path=str(file)
        ) from None
    except Invalid as error:
        raise Invalid(f"{file}: {error}", hint=error.hint) from None
    except OSError as error:
        raise Invalid(
            f"cannot read {file}: {error.strerror or error}",
            hint="Give a file that can be read.",
            path=str(file),
        ) from None


def _draw_stored(stored: Stored, costs: Mapping[str, float]) -> None:
    from rich.table import Table

    output.say(redact(stored.url))
    table = Table(title="Stored", title_justify="left", show_footer=True)
    table.add_column("class", footer="total")
    table.add_column("objects", justify="right", footer=f"{stored.total.objects:,}")
    table.add_column("bytes", justify="right", footer=f"{stored.total.bytes:,}")
    table.add_column("size", justify="right", footer=output.size(stored.total.bytes))
    if costs:
        table.add_column("a month", justify="right", footer=f"{sum(costs.values()):,.4f}")
    for name, amount in stored.amounts.items():
        cells = [name, f"{amount.objects:,}", f"{amount.bytes:,}", output.size(amount.bytes)]
        table.add_row(*cells, *([f"{costs[name]:,.4f}"] if costs else []))
    output.draw(table)


def _draw_usage(usage: Usage) -> None:
    from rich.table import Table

    table = Table(title="Asked for in a month", title_justify="left")
    table.add_column("what")
    table.add_column("amount", justify="right")
    table.add_row("class A requests", f"{usage.class_a_requests:,}")
    table.add_row("class B requests", f"{usage.class_b_requests:,}")
    table.add_row("deletions", f"{usage.free_requests:,}")
    table.add_row("bytes written", output.size(usage.bytes_written))
    table.add_row("bytes read", output.size(usage.bytes_read))
    output.draw(table)


def _draw_bill(made: Bill) -> None:
    from rich.table import Table

    table = Table(title=f"A month, in {made.currency}", title_justify="left", show_footer=True)
    table.add_column("what", footer="total")
    table.add_column("amount", justify="right")
    table.add_column("of", justify="left")
    table.add_column("price", justify="right")
    table.add_column("cost", justify="right", footer=f"{made.total:,.2f}")
    for line in made.lines:
        amount, price = f"{line.amount:,.3f}", f"{line.price:,.6f}".rstrip("0").rstrip(".")
        table.add_row(line.what, amount, line.unit, price, f"{line.cost:,.2f}")
    output.draw(table)
