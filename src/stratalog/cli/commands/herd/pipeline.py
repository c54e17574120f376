"""`pipeline`: the jobs that keep a herd, on Spark.

Spark and all that it needs are loaded when a job starts, and the roll-up does without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import typer

from stratalog.cli import output
from stratalog.cli.commands.herd import pipeline_display as display
from stratalog.cli.commands.herd.herd import find_dirty
from stratalog.cli.commands.herd.pipeline_run import run
from stratalog.cli.exits import end
from stratalog.cli.groups import Commands, option
from stratalog.cli.output import Advance
from stratalog.cli.parameters import (
    CursorName,
    Dirty,
    Interval,
    Job,
    Keep,
    Key,
    Root,
    Server,
    Sweep,
)
from stratalog.cli.reply import Reply
from stratalog.cli.spark_options import SparkOptions
from stratalog.errors import Corrupt
from stratalog.store import redact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.pipeline.check import HerdScrub, HerdVerify
    from stratalog.pipeline.collect import HerdCollect
    from stratalog.pipeline.jobs import Trouble
    from stratalog.pipeline.materialize import Materialized

pipelines = Commands(
    "pipeline", help="The jobs that keep a herd, on Spark: merge, collect, scrub, verify."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Herd:
    """The options of every job: which logs, where Spark runs, and how the command replies."""

    logs: list[str] | None = option("Only this log. May be repeated.", "--log", metavar="NAME")
    spark: SparkOptions
    reply: Reply

    @contextmanager
    def job(self, root: str, what: str) -> Iterator[tuple[SparkSession, Advance]]:
        """A session, and what shows how many of Spark's tasks have ended."""
        with (
            self.spark.over_herd(root, self.logs, self.reply) as spark,
            self.reply.progress(what, unit="tasks") as advance,
        ):
            yield spark, advance


@pipelines.command("roll-up")
def roll_up(root: Root, server: Server = "worker", *, dirty: Dirty, reply: Reply) -> None:
    """Find the logs that have changed. Needs no Spark.

    The same as `stratalog herd dirty`.

    Example:
      stratalog pipeline roll-up s3://bucket/shop --server nightly
    """
    find_dirty(root, server, dirty, reply)


@pipelines.command("materialize")
def materialize(
    root: Root,
    key: Key = None,
    job: Job = "latest",
    cursor: CursorName = "compaction",
    *,
    herd: Herd,
) -> None:
    """Merge what the logs have added into their outputs, and move their cursors.

    The output of a log has one row for each key: its latest record. Logs with
    nothing new cost two reads. What was merged may be collected.

    Examples:
      stratalog pipeline materialize shop --key "get_json_object(string(body), '$.id')"
      stratalog pipeline materialize shop --key "substr(body, 1, 8)" --log orders-eu
    """
    if key is None:
        raise typer.BadParameter("--key says what the records are merged by")
    from stratalog.pipeline.materialize import MaterializeOptions, latest_by_key
    from stratalog.pipeline.materialize import materialize as begin

    options, merge = MaterializeOptions(job=job, cursor=cursor), latest_by_key(key)
    with herd.job(root, "materializing") as (spark, advance):
        done = begin(
            spark,
            root,
            merge,
            logs=herd.logs,
            options=options,
            on_progress=lambda progress: advance(progress.done),
        )
    herd.reply.result(done, _facts, display.show_materialized)
    _end(done.troubles)


@pipelines.command("collect")
def collect(
    root: Root,
    cursor: CursorName = "compaction",
    job: Job = "latest",
    interval: Interval = 5.0,
    sweep: Sweep = False,
    *,
    herd: Herd,
) -> None:
    """Give back the space of what is merged, in many logs at a time.

    Each log is collected up to its lowest cursor, as `stratalog collect` does.
    By default all logs whose compaction cursor lies beyond their beginning.

    Examples:
      stratalog pipeline collect s3://bucket/shop
      stratalog pipeline collect shop --sweep --interval 0
    """
    from stratalog.pipeline.collect import HerdCollectOptions, collect_herd

    options = HerdCollectOptions(cursor=cursor, job=job, interval_s=interval, sweep=sweep)
    with herd.job(root, "collecting") as (spark, advance):
        done = collect_herd(spark, root, logs=herd.logs, options=options, on_progress=advance)
    herd.reply.result(done, _facts, display.show_collected)
    _end(done.troubles)


@pipelines.command("scrub")
def scrub(root: Root, keep: Keep = 10, *, herd: Herd) -> None:
    """Read and hash every record of every log, and leave an audit table.

    Finds what `stratalog scrub` finds, in all logs at once. The hashes of all
    records of a log must add up to what its manifest says. The exit code is 13
    if something is damaged.

    Examples:
      stratalog pipeline scrub s3://bucket/shop --master spark://host:7077
      stratalog pipeline scrub shop --json | jq '.logs[] | select(.damages != [])'
    """
    from stratalog.pipeline.check import HerdScrubOptions, scrub_herd

    options = HerdScrubOptions(keep_audits=keep)
    with herd.job(root, "scrubbing") as (spark, advance):
        done = scrub_herd(spark, root, logs=herd.logs, options=options, on_progress=advance)
    herd.reply.result(done, _scrub_facts, display.show_scrubbed)
    end(is_damaged=bool(done.damages), is_partial=bool(done.troubles))


@pipelines.command("verify")
def verify(
    root: Root,
    cursor: CursorName = "compaction",
    job: Job = "latest",
    records: bool = option("Also read and hash every record.", default=False),
    *,
    herd: Herd,
) -> None:
    """Show that manifests, cursors, outputs and marks fit together.

    Reads a handful of objects a log, and all marks. Changes nothing. The exit
    code is 13 if something does not fit.

    Examples:
      stratalog pipeline verify s3://bucket/shop
      stratalog pipeline verify shop --json | jq .findings
    """
    from stratalog.pipeline.check import HerdVerifyOptions, verify_herd

    options = HerdVerifyOptions(cursor=cursor, job=job, records=records)
    with herd.job(root, "verifying") as (spark, advance):
        done = verify_herd(spark, root, logs=herd.logs, options=options, on_progress=advance)
    herd.reply.result(done, _verify_facts, display.show_verified)
    end(is_damaged=bool(done.findings), is_partial=bool(done.troubles))


pipelines.command("run")(run)


def _facts(done: Materialized | HerdCollect) -> object:
    facts = output.fields_of(done, *(each.name for each in fields(done)))
    return {**facts, "troubles": _plain(done.troubles), "records": done.records}


def _scrub_facts(done: HerdScrub) -> object:
    return {
        **output.fields_of(done, "run", "clean", "fragments", "records"),
        "bytes": done.num_bytes,
        **output.fields_of(done, "expected_sum", "actual_sum", "collected_sum", "gone", "seconds"),
        "requests": done.usage,
        "logs": [
            {
                **asdict(log),
                "damages": [each.to_dict() for each in log.damages],
                "remarks": [each.to_dict() for each in log.remarks],
            }
            for log in done.logs
        ],
    }


def _verify_facts(done: HerdVerify) -> object:
    return {
        "ok": done.ok,
        "logs": len(done.logs),
        "records": done.records,
        "bytes": done.num_bytes,
        **output.fields_of(done, "waiting", "marks", "gone", "seconds"),
        "requests": done.usage,
        "findings": [
            {**asdict(each), "meaning": each.meaning, "remedy": each.remedy}
            for each in done.findings
        ],
        "troubles": _plain(done.troubles),
    }


def _plain(troubles: Sequence[Trouble]) -> list[dict[str, str]]:
    return [
        {"log": each.log, "kind": each.error.kind, "message": redact(str(each.error))}
        for each in troubles
    ]


def _end(troubles: Sequence[Trouble]) -> None:
    is_damaged = any(isinstance(each.error, Corrupt) for each in troubles)
    end(is_damaged=is_damaged, is_partial=bool(troubles))
