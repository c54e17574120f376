"""`./dev demo`: a herd of 200 logs, written by two servers and kept by Spark.

Orders of 200 shops come at very different rates, each shop with a log of its own. The pipeline
finds the logs that changed, brings the latest order of each customer up to date, gives the space
back, hashes what is left and proves the herd; logs with little news wait. A few shops have a policy
instead: their logs keep the latest order of each customer, and are compacted. More orders come, and
a question in SQL joins what waits with what is merged. A second run takes only what is new. In the
end every customer's latest order, merged or not, is compared with what was written. The herd is
removed at the end; the report stays.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

import stratalog as sl
from stratalog.cli import output
from stratalog.cli.commands.herd.pipeline_display import show_run, stages_shown
from stratalog.pipeline import RunOptions, html_of, read_output, run_pipeline
from stratalog.pipeline.read.dataframes import pinned_herd
from stratalog.pipeline.run.run_report import RunReport
from stratalog.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOPS = 200
ORDERS = 300_000
MORE = 0.1
"""How many orders come after the first run, as a share of those before it."""

SERVERS = 2
AT_ONCE = 16
BURST = 500
CUSTOMERS_PER_SHOP = 300
REPORT = Path(__file__).parents[1] / "build" / "demo-report.html"
BIG = 1_000
"""A log with so many new orders is merged at once. Others wait until an hour has passed."""

KEPT = range(3, 6)
"""The shops, by their rank, whose logs are not cut off but compacted."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that does not live long enough to become fast: half of its work would be compiling."""

KEY = "get_json_object(cast(body as string), '$.customer')"
QUESTION = """
    SELECT new.log AS shop,
           count(*) AS orders,
           sum(new.amount) / 100 AS revenue,
           count(DISTINCT new.customer) AS customers,
           count(DISTINCT known.key) AS came_back
    FROM new LEFT JOIN known ON known.log = new.log AND known.key = new.customer
    GROUP BY new.log ORDER BY revenue DESC LIMIT 5
"""


@dataclass
class Shops:
    """What was sold so far: the model that the herd is compared with in the end."""

    random: Random
    orders: Counter[str] = field(default_factory=Counter)
    latest: dict[tuple[str, str], int] = field(default_factory=dict)
    """The number of the latest order of each customer, by shop."""

    def rates(self, shops: int, orders: int) -> dict[str, int]:
        """How many orders each shop gets: the second half as many as the first, and so on."""
        weights = [1 / (rank + 1) for rank in range(shops)]
        scale = orders / sum(weights)
        return {
            f"shop-{rank:03}": max(1, round(weight * scale)) for rank, weight in enumerate(weights)
        }

    def sell(self, shop: str, count: int) -> list[bytes]:
        """So many orders more, as records."""
        return [self._order(shop) for _ in range(count)]

    def _order(self, shop: str) -> bytes:
        self.orders[shop] += 1
        number, customer = self.orders[shop], f"c{self.random.randrange(CUSTOMERS_PER_SHOP):03}"
        self.latest[shop, customer] = number
        amount = self.random.randrange(100, 100_000)
        return b'{"order": %d, "customer": "%s", "amount": %d}' % (
            number,
            customer.encode(),
            amount,
        )


def progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(SpinnerColumn(), *columns, TimeElapsedColumn(), console=output.console())


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """For work that does not tell how far it is."""
    with output.console().status(what):
        yield


async def write(root: str, shops: Shops, rates: dict[str, int]) -> None:
    """Two servers append, each to all logs, some of them at the same time."""
    bursts = [
        (shop, min(BURST, count - done))
        for shop, count in rates.items()
        for done in range(0, count, BURST)
    ]
    shops.random.shuffle(bursts)
    turn = {shop: asyncio.Lock() for shop in rates}
    work = iter(bursts)
    with progress() as bar:
        task = bar.add_task("writing orders", total=sum(rates.values()))

        async def serve(herd: sl.Herd) -> None:
            for shop, count in work:
                async with turn[shop]:
                    await herd.log(shop).append_many(shops.sell(shop, count))
                bar.advance(task, count)

        async def server(number: int) -> None:
            async with (
                sl.Herd.open(root, server=f"api-{number}") as herd,
                asyncio.TaskGroup() as on,
            ):
                for _ in range(AT_ONCE // SERVERS):
                    on.create_task(serve(herd))

        async with sl.Herd.open(root) as herd:
            for shop in rates:
                await herd.create(shop, exist_ok=True)
        await asyncio.gather(*map(server, range(SERVERS)))


def kept_shops(rates: dict[str, int]) -> list[str]:
    return [shop for rank, shop in enumerate(rates) if rank in KEPT]


async def set_policies(root: str, shops: list[str]) -> None:
    """The latest order of each customer lives, and everything else of these shops may go."""
    lives = sl.Live(key=KEY)
    async with sl.Herd.open(root) as herd:
        for shop in shops:
            await sl.PolicyStore(await herd.log(shop).store()).set(sl.Policy(live=lives))


async def amounts(root: str, shops: list[str]) -> dict[str, tuple[int, int]]:
    """How many records these logs hold, and how many bytes."""
    found = {}
    async with sl.Herd.open(root) as herd:
        for shop in shops:
            async with herd.log(shop).reader() as reader:
                entries = await reader.scan(from_offset=reader.first_offset)
            found[shop] = sum(each.count for each in entries), sum(e.num_bytes for e in entries)
    return found


def compacted(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> Table:
    table = Table(title="Compacted, as their policies say", title_justify="left")
    for title in ("shop", "orders before", "after", "bytes before", "after"):
        table.add_column(title, justify="left" if title == "shop" else "right")
    for shop, (records, num_bytes) in before.items():
        table.add_row(
            shop,
            f"{records:,}",
            f"{after[shop][0]:,}",
            output.size(num_bytes),
            output.size(after[shop][1]),
        )
    return table


def keep(spark: SparkSession, root: str) -> RunReport:
    """The whole pipeline, once, with a display."""
    with stages_shown(shown=True) as show:
        report = run_pipeline(
            spark,
            root,
            server="worker",
            merge=KEY,
            options=RunOptions(age_s=3600.0, records=BIG, interval_s=0.0),
            on_event=show,
        )
    show_run(report)
    if report.error is not None:
        raise report.error
    return report


def ask(spark: SparkSession, root: str, kept: list[str]) -> Table:
    """Of what is not merged yet: which shops sold most, and how many customers were known?

    Logs that are kept hold what is merged as well, so they are not asked.
    """
    with pinned_herd(spark, root) as records:
        records.where(~records.log.isin(kept)).selectExpr(
            "log",
            f"{KEY} AS customer",
            "cast(get_json_object(cast(body as string), '$.amount') AS bigint) AS amount",
        ).createOrReplaceTempView("new")
        read_output(spark, root, "latest").createOrReplaceTempView("known")
        rows = spark.sql(QUESTION).collect()
    table = Table(title="Not merged yet: the shops that sold most", title_justify="left")
    for title in ("shop", "orders", "revenue", "customers", "of them known before"):
        table.add_column(title, justify="left" if title == "shop" else "right")
    for row in rows:
        table.add_row(
            row.shop,
            f"{row.orders:,}",
            f"{row.revenue:,.2f}",
            f"{row.customers:,}",
            f"{row.came_back:,}",
        )
    return table


def prove(spark: SparkSession, root: str, shops: Shops, report: RunReport) -> None:
    """Every customer's latest order is the one that was written, and nothing is damaged."""
    from pyspark.sql import functions as sf

    with pinned_herd(spark, root, verify=True) as waiting_records:
        merged = read_output(spark, root, "latest").select("log", "key", "offset", "body")
        rows = (
            waiting_records.selectExpr("log", f"{KEY} AS key", "offset", "body")
            .unionByName(merged)
            .groupBy("log", "key")
            .agg(sf.max_by("body", "offset").alias("body"))
            .collect()
        )
    found = {(row.log, row.key): json.loads(bytes(row.body))["order"] for row in rows}
    if found != shops.latest:
        wrong = sum(found.get(each) != order for each, order in shops.latest.items())
        raise sl.errors.Corrupt(f"{wrong} customers have another latest order than was written")
    if not report.ok:
        raise sl.errors.Corrupt("the herd is not as it should be", hint=f"See {REPORT}.")
    output.say(
        f"\nProved: {sum(shops.orders.values()):,} orders in {len(shops.orders)} logs. The latest "
        f"order of each of {len(found):,} customers is the one that was written,\nand every record "
        "that is left hashes to the sum in its manifest."
    )


def demo(shops_count: int, orders: int) -> None:
    shops = Shops(Random(7))
    with tempfile.TemporaryDirectory(prefix="stratalog-demo-") as folder:
        root = f"{folder}/herd"
        rates = shops.rates(shops_count, orders)
        output.say(
            f"A herd of {len(rates)} logs in {folder}\nThe busiest gets {max(rates.values()):,} "
            f"orders, the quietest {min(rates.values()):,}\n"
        )
        asyncio.run(write(root, shops, rates))
        kept = kept_shops(rates)
        asyncio.run(set_policies(root, kept))
        with ExitStack() as stack:
            with waiting("starting Spark"):
                conf = {"spark.driver.extraJavaOptions": SHORT_LIVED}
                opened = session(master="local[*]", conf=conf, name="stratalog-demo")
                spark = stack.enter_context(opened)
            before = asyncio.run(amounts(root, kept))
            keep(spark, root)
            output.draw(compacted(before, asyncio.run(amounts(root, kept))))
            output.say("\nBusiness goes on")
            more = {shop: max(1, round(count * MORE)) for shop, count in rates.items()}
            asyncio.run(write(root, shops, more))
            with waiting("asking"):
                answer = ask(spark, root, kept)
            output.draw(answer)
            report = keep(spark, root)
            prove(spark, root, shops, report)
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(html_of(report), encoding="utf-8")
    output.say(f"\nThe report: {REPORT}\nTry your own: ./dev python -m stratalog pipeline --help")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__)
    parser.add_argument("--shops", type=int, default=SHOPS, help="how many logs (%(default)s)")
    parser.add_argument("--orders", type=int, default=ORDERS, help="how many (%(default)s)")
    arguments = parser.parse_args()
    if arguments.shops < 1 or arguments.orders < 1:
        parser.error("--shops and --orders are at least 1")
    try:
        demo(arguments.shops, arguments.orders)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
