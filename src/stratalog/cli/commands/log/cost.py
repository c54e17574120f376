"""`cost`: what a log has stored, by class, and what a month of it costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from stratalog.cli import output
from stratalog.cli.groups import option
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply
from stratalog.cli.values import decoded, unreadable
from stratalog.store import Usage, redact

if TYPE_CHECKING:
    from stratalog.objectlog.cost import Bill, Prices, Stored

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Assumed:
    """What a bill is made from besides the log: prices, and what is asked of the store."""

    prices: Path | None = option("The provider's prices, as JSON or TOML.", metavar="FILE")
    stats: list[Path] | None = option(
        "Stats that a writer or reader has left, as JSON; several add up.", metavar="FILE"
    )
    appends_per_second: float = option(
        "How many appends to expect, on average.", default=0.0, metavar="N", min=0
    )
    append_bytes: int = option("Their mean size.", default=0, metavar="BYTES", min=0)
    interval_s: float = option(
        "WriterOptions.interval_s, which caps the requests.", default=0.0, metavar="SECONDS", min=0
    )
    followers: int = option("How many readers follow.", default=0, metavar="N", min=0)

    def listed(self) -> Prices | None:
        from stratalog.objectlog.cost import Prices

        return None if self.prices is None else _read(self.prices, Prices.from_text)

    def usage(self) -> Usage | None:
        """What is asked for in a month, as far as anything is said about that."""
        from stratalog.objectlog.cost import Measured, Rates

        usages = [_read(file, Measured.from_json).a_month for file in self.stats or ()]
        if self.appends_per_second or self.followers:
            rates = Rates(
                appends_per_second=self.appends_per_second,
                append_bytes=self.append_bytes,
                interval_s=self.interval_s,
                followers=self.followers,
            )
            usages.append(rates.a_month)
        return sum(usages, Usage()) if usages else None


def _read(file: Path, decode: Callable[[bytes], T]) -> T:
    try:
        return decoded(file, decode)
    except OSError as error:
        raise unreadable(str(file), error, "Give a file that can be read.") from None


def cost(url: Url, *, assumed: Assumed, reply: Reply) -> None:
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
    from stratalog.objectlog.cost import bill, measure_storage, storage_cost

    prices, usage = assumed.listed(), assumed.usage()
    with reply.progress("listing", unit="objects") as advance:
        stored = reply.run(measure_storage(url, on_progress=advance))
    made = None if prices is None else bill(prices, stored.total.bytes, usage)
    facts = {
        "url": redact(stored.url),
        "stored": stored.amounts,
        "total": stored.total,
        "usage_per_month": usage,
        "bill": made,
        "cost_per_month": None if made is None else made.total,
    }

    def show(stored: Stored) -> None:
        _draw_stored(stored, {} if prices is None else storage_cost(prices, stored))
        if made is not None:
            _draw_bill(made)
        elif usage is not None:
            _draw_usage(usage)

    reply.result(stored, lambda _: facts, show)


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
    table = output.table("what", "amount", title="Asked for in a month", right=("amount",))
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
