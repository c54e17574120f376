"""`compact`: drop the records that no longer live, as a key, a query on Spark or a file says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from stratalog.cli import output
from stratalog.cli.groups import option
from stratalog.cli.parameters import FILE_TO_READ, Interval, Url
from stratalog.cli.reply import Reply, logged
from stratalog.cli.spark_options import SparkOptions
from stratalog.cli.values import grace_s
from stratalog.errors import Invalid

if TYPE_CHECKING:
    from stratalog.indexset import IndexSet
    from stratalog.objectlog import CompactOptions
    from stratalog.objectlog.compaction import Compacted
    from stratalog.pipeline.compact import CompactedLog


@dataclass(frozen=True, slots=True)
class WhatLives:
    key: str | None = option(
        "What lives: the last record of each key, an expression over offset, timestamp "
        "and body. Runs on Spark, and reads what is new since the last run.",
        metavar="SQL",
    )
    tombstone: str | None = option(
        "With --key: which records mean that their key is gone.", metavar="SQL"
    )
    grace: float | None = option(
        "How long a tombstone lives: 90s, 6h, 7d, or seconds. Default: a day.",
        parser=grace_s,
        metavar="DURATION",
    )
    full: bool = option(
        "With --key: read the whole log, whatever the last run has left.", default=False
    )
    live: str | None = option(
        "What lives: a query over the view log (offset, timestamp, body) "
        "that gives offsets. Runs on Spark.",
        metavar="SQL",
    )
    live_file: Path | None = option(
        "What lives: an IndexSet, in its JSON or its binary form. Needs --up-to, and no Spark.",
        **FILE_TO_READ,
    )
    up_to: int | None = option(
        "Judge only records before this one. Default: all.", metavar="OFFSET", min=1
    )

    def check(self) -> None:
        if [self.key, self.live, self.live_file].count(None) != 2:
            raise typer.BadParameter(
                "give one of --key, --live and --live-file: they say what lives"
            )
        of_keys = self.tombstone is not None or self.grace is not None or self.full
        if self.key is None and of_keys:
            raise typer.BadParameter("--tombstone, --grace and --full belong to --key")
        if self.grace is not None and self.tombstone is None:
            raise typer.BadParameter("--grace is how long a --tombstone lives")
        if self.live_file is not None and self.up_to is None:
            raise typer.BadParameter("--live-file needs --up-to: where its owner stopped reading")


def compact(
    url: Url,
    *,
    lives: WhatLives,
    live_share_min: float = option(
        "Rewrite fragments of which less than this lives; 1 drops every dead record.",
        default=0.5,
        metavar="SHARE",
    ),
    interval: Interval = 5.0,
    spark: SparkOptions,
    reply: Reply,
) -> None:
    """Drop the records that no longer live. Offsets stay what they are.

    Everything that the query does not name is dead, up to the tail that it has
    seen; what is appended meanwhile stays, and so does the newest fragment.
    Pins and forks go on to read what they read before. With --key, an index
    under live/ keeps for the next run what this one has seen.

    Examples:
      stratalog compact settings --key "get_json_object(string(body), '$.key')"
        --tombstone "get_json_object(string(body), '$.value') IS NULL"
      stratalog compact settings --live "SELECT max(offset) FROM log GROUP BY
        get_json_object(string(body), '$.key')"
      stratalog compact settings --live-file live.json --up-to 5000
    """
    lives.check()
    from stratalog import sync
    from stratalog.objectlog import CompactOptions

    done: Compacted | CompactedLog
    options = CompactOptions(live_share_min=live_share_min, interval_s=interval)
    with (
        logged(reply.verbose),
        reply.progress("compacting", unit="fragments") as advance,
    ):
        if lives.live_file is not None:
            assert lives.up_to is not None
            live = loaded(lives.live_file)
            done = sync.compact(url, live, up_to=lives.up_to, on_progress=advance, options=options)
        else:
            done = _on_spark(url, lives, spark, advance, options)
    reply.result(done, _facts, _show)


def _on_spark(
    url: str,
    lives: WhatLives,
    spark: SparkOptions,
    advance: output.Advance,
    options: CompactOptions,
) -> Compacted | CompactedLog:
    check_there(url)  # Spark takes its time to start
    with spark.session() as session:
        from stratalog.pipeline import compact_by_key, compact_log
        from stratalog.pipeline.compact import GRACE_S, ByKey

        if lives.key is None:
            assert lives.live is not None
            return compact_log(
                session,
                url,
                lives.live,
                up_to=lives.up_to,
                on_progress=advance,
                options=options,
            )
        grace_s = GRACE_S if lives.grace is None else lives.grace
        return compact_by_key(
            session,
            url,
            ByKey(lives.key, lives.tombstone, grace_s),
            up_to=lives.up_to,
            incremental=not lives.full,
            on_progress=advance,
            options=options,
        )


def check_there(url: str) -> None:
    """Raise now what reading this log would raise."""
    from stratalog import sync

    with sync.LogReader.open(url):
        pass


def loaded(file: Path) -> IndexSet:
    """The set of offsets that a file holds, in its JSON or its binary form."""
    from stratalog.indexset import IndexSet

    data = file.read_bytes()
    if data.startswith(b"IXS1"):
        return IndexSet.from_bytes(data)
    try:
        form = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise Invalid(
            f"{file} is no set of indexes: {error}",
            hint="It is [[start, limit], …], or what IndexSet.to_bytes gives.",
        ) from None
    return IndexSet.from_json(form)


def _show(done: Compacted | CompactedLog) -> None:
    from stratalog.objectlog.compaction import Compacted

    read = ""
    if not isinstance(done, Compacted):
        read = f"; {output.count(done.read, 'record')} read, {done.live:,} live"
    if not done.fragments:
        output.say(f"nothing to drop{read}")
        return
    output.say(
        f"dropped {output.count(done.records, 'record')}: "
        f"{output.count(done.fragments, 'fragment')} became "
        f"{done.rewritten:,} ({output.size(done.bytes_before)} → {output.size(done.bytes_after)})"
        f"{read}"
    )


def _facts(done: Compacted | CompactedLog) -> dict[str, object]:
    from stratalog.objectlog.compaction import Compacted

    names = ("up_to", "records", "fragments", "rewritten", "bytes_before", "bytes_after")
    facts = output.fields_of(done, *names)
    if isinstance(done, Compacted):
        objects = done.removed.fragments + done.removed.snapshots
        return {**facts, "setsum": done.setsum.hexdigest(), "objects_deleted": objects}
    return {**facts, "read": done.read, "live": done.live, "objects_deleted": done.objects}
