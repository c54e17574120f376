"""`pipeline`: the jobs that keep a herd, on Spark.

Spark and all that it needs are loaded when a job starts, and the roll-up does without.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import exits, output
from stratalog.cli.commands.herd import herd as of_herds
from stratalog.cli.commands.herd import pipeline_display as display
from stratalog.cli.commands.herd.herd import Root
from stratalog.cli.help import Group
from stratalog.cli.parameters import AsJson, Verbose, duration_s, in_a_directory, logged
from stratalog.errors import Corrupt, NotHappened
from stratalog.store import redact

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.pipeline.collect import HerdCollect
    from stratalog.pipeline.jobs import Trouble
    from stratalog.pipeline.materialize import Materialized, MaterializeProgress
    from stratalog.pipeline.run import OnEvent, RunEvent, RunReport, Stage

AGE_S = 600.0
RECORDS = 10_000
EVERY_STAGE: tuple[Stage, ...] = (
    "roll-up",
    "materialize",
    "compact",
    "collect",
    "scrub",
    "verify",
)
THOROUGH_S = 86_400.0

Server = Annotated[
    str, typer.Option(metavar="NAME", help="The name of this worker among the servers.")
]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where Spark runs: local[4], spark://host:7077, yarn."),
]
Remote = Annotated[
    str | None, typer.Option(metavar="URL", help="A server of Spark Connect: sc://host:15002.")
]
Conf = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A setting of Spark. May be repeated."),
]
Logs = Annotated[
    list[str] | None,
    typer.Option("--log", metavar="NAME", help="Only this log. May be repeated."),
]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="SQL",
        help="Keep the latest record of each key: an expression over body, offset, "
        "timestamp and log.",
    ),
]
Job = Annotated[str, typer.Option(metavar="NAME", help="The job: its outputs lie under its name.")]
CursorName = Annotated[
    str, typer.Option("--cursor", metavar="NAME", help="The cursor up to which logs are compacted.")
]
Interval = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0, help="What slow readers get before deletions begin."),
]
Sweep = Annotated[bool, typer.Option("--sweep", help="Also delete the objects that nothing links.")]
Keep = Annotated[int, typer.Option(metavar="N", min=1, help="How many audits are kept.")]
Age = Annotated[
    float | None,
    typer.Option(
        parser=duration_s, metavar="DURATION", help="Select what has been dirty for so long."
    ),
]
Records = Annotated[
    int, typer.Option(metavar="N", min=1, help="Select what has so many records waiting.")
]

pipelines = typer.Typer(
    cls=Group,
    name="pipeline",
    no_args_is_help=True,
    help="The jobs that keep a herd, on Spark: merge, collect, scrub, verify.",
)


@pipelines.command("roll-up")
def roll_up(
    root: Root,
    server: Server = "worker",
    age: Age = None,
    records: Records = RECORDS,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Find the logs that have changed. Needs no Spark.

    The same as `stratalog herd dirty`.

    Example:
      stratalog pipeline roll-up s3://bucket/shop --server nightly
    """
    of_herds.roll_up(
        root, worker=server, age=age, records=records, as_json=as_json, verbose=verbose
    )


@pipelines.command("materialize")
def materialize(
    root: Root,
    key: Key = None,
    job: Job = "latest",
    cursor: CursorName = "compaction",
    logs: Logs = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
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
    with (
        _spark(root, logs, master, remote, conf, verbose) as spark,
        _tasks("materializing", as_json) as note,
    ):

        def tell(progress: MaterializeProgress) -> None:
            note(progress.done, progress.total)

        done = begin(spark, root, merge, logs=logs, options=options, on_progress=tell)
    if as_json:
        output.write_json(_plain(done))
    else:
        display.tell_materialized(done)
    _exit_for_troubles(done.troubles)


@pipelines.command("collect")
def collect(
    root: Root,
    cursor: CursorName = "compaction",
    job: Job = "latest",
    interval: Interval = 5.0,
    sweep: Sweep = False,
    logs: Logs = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
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
    with (
        _spark(root, logs, master, remote, conf, verbose) as spark,
        _tasks("collecting", as_json) as note,
    ):
        done = collect_herd(spark, root, logs=logs, options=options, on_progress=note)
    if as_json:
        output.write_json(_plain(done))
    else:
        display.tell_collected(done)
    _exit_for_troubles(done.troubles)


@pipelines.command("scrub")
def scrub(
    root: Root,
    keep: Keep = 10,
    logs: Logs = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
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
    with (
        _spark(root, logs, master, remote, conf, verbose) as spark,
        _tasks("scrubbing", as_json) as note,
    ):
        done = scrub_herd(spark, root, logs=logs, options=options, on_progress=note)
    if as_json:
        output.write_json(
            {
                "run": done.run,
                "clean": done.clean,
                "fragments": done.fragments,
                "records": done.records,
                "bytes": done.num_bytes,
                "expected_sum": done.expected_sum,
                "actual_sum": done.actual_sum,
                "collected_sum": done.collected_sum,
                "gone": done.gone,
                "seconds": done.seconds,
                "requests": asdict(done.usage),
                "logs": [
                    {
                        **asdict(log),
                        "damages": [each.to_dict() for each in log.damages],
                        "remarks": [each.to_dict() for each in log.remarks],
                    }
                    for log in done.logs
                ],
            }
        )
    else:
        display.tell_scrubbed(done)
    _exit_for(is_damaged=bool(done.damages), is_partial=bool(done.troubles))


@pipelines.command("verify")
def verify(
    root: Root,
    cursor: CursorName = "compaction",
    job: Job = "latest",
    records: Annotated[
        bool, typer.Option("--records", help="Also read and hash every record.")
    ] = False,
    logs: Logs = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
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
    with (
        _spark(root, logs, master, remote, conf, verbose) as spark,
        _tasks("verifying", as_json) as note,
    ):
        done = verify_herd(spark, root, logs=logs, options=options, on_progress=note)
    if as_json:
        output.write_json(
            {
                "ok": done.ok,
                "logs": len(done.logs),
                "records": done.records,
                "bytes": done.num_bytes,
                "waiting": done.waiting,
                "marks": done.marks,
                "gone": done.gone,
                "seconds": done.seconds,
                "requests": asdict(done.usage),
                "findings": [
                    {**asdict(each), "meaning": each.meaning, "remedy": each.remedy}
                    for each in done.findings
                ],
                "troubles": _plain_troubles(done.troubles),
            }
        )
    elif done.ok:
        output.say(
            f"{output.count(len(done.logs), 'log')} with {output.count(done.records, 'record')} "
            f"({output.size(done.num_bytes)}) fit together; {done.waiting:,} with records that "
            f"wait, {output.count(done.marks, 'mark')}"
        )
    else:
        display.tell_findings(done.findings)
        for trouble in done.troubles:
            output.say(redact(str(trouble)))
        unread = f", {output.count(len(done.troubles), 'log')} unread" if done.troubles else ""
        output.say(f"{output.count(len(done.findings), 'finding')}{unread}")
    _exit_for(is_damaged=bool(done.findings), is_partial=bool(done.troubles))


@pipelines.command("run")
def run(
    root: Root,
    key: Key = None,
    job: Job = "latest",
    server: Server = "worker",
    cursor: CursorName = "compaction",
    stages: Annotated[
        str, typer.Option(metavar="LIST", help="Which stages, with commas between them.")
    ] = ",".join(EVERY_STAGE),
    once: Annotated[bool, typer.Option("--once", help="One round. This is the default.")] = False,
    every: Annotated[
        float | None,
        typer.Option(
            parser=duration_s, metavar="DURATION", help="Round after round, so far apart."
        ),
    ] = None,
    thorough: Annotated[
        float | None,
        typer.Option(
            parser=duration_s,
            metavar="DURATION",
            help="With --every: scrub and verify only so often.",
            show_default="1d",
        ),
    ] = None,
    age: Age = None,
    records: Records = RECORDS,
    interval: Interval = 5.0,
    sweep: Sweep = False,
    keep: Keep = 10,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            callback=in_a_directory,
            help="Where the page with the charts goes. \\[here, named by the time]",
        ),
    ] = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Roll up, materialize, compact, collect, scrub and verify, in this order.

    A run that was killed is resumed by the next one. Once, all that waits is
    merged; with --every, what has waited for --age or holds --records. What
    `compact` drops from a log is said by its policy (see `stratalog policy`); a
    log without one is left as it is. In the end there is a table, and a page with
    charts. The exit code is 13 if something is damaged, 5 if some logs could not
    be done.

    Examples:
      stratalog pipeline run shop --key "get_json_object(string(body), '$.id')"
      stratalog pipeline run shop --key "substr(body, 1, 8)" --every 60s
      stratalog pipeline run shop --stages compact,collect
      stratalog pipeline run shop --stages scrub,verify --report friday.html
    """
    if once and every is not None:
        raise typer.BadParameter("--once and --every exclude each other")
    chosen = _stages(stages)
    if "materialize" in chosen and key is None:
        raise typer.BadParameter(
            "--key says what the records are merged by; or leave the stage out"
        )
    from stratalog.pipeline.session import require_pyspark

    require_pyspark()
    from stratalog.pipeline.run import RunOptions, run_forever, run_pipeline

    options = RunOptions(
        job=job,
        cursor=cursor,
        age_s=(0.0 if every is None else AGE_S) if age is None else age,
        records=records,
        interval_s=interval,
        sweep=sweep,
        keep_audits=keep,
    )
    with (
        _spark(root, None, master, remote, conf, verbose) as spark,
        display.stages_shown(shown=not as_json) as show,
    ):
        if every is not None:
            rounds = _Rounds(show, report, as_json)
            with _asked_to_end() as stop:
                run_forever(
                    spark,
                    root,
                    server=server,
                    merge=key,
                    stages=chosen,
                    options=options,
                    every_s=every,
                    thorough_every_s=THOROUGH_S if thorough is None else thorough,
                    stop=stop,
                    on_event=rounds,
                )
            _exit_for(is_damaged=rounds.is_damaged, is_partial=False)
            return
        done = run_pipeline(
            spark,
            root,
            server=server,
            merge=key,
            stages=chosen,
            options=options,
            on_event=show,
        )
    _tell(done, report, as_json)
    if done.error is not None:
        if not done.is_damaged:
            raise done.error
        _show_failure(done, done.error.hint, as_json)
    _exit_for(is_damaged=done.is_damaged, is_partial=bool(done.troubles))


# Running


@contextmanager
def _spark(
    root: str,
    logs: Sequence[str] | None,
    master: str | None,
    remote: str | None,
    conf: Sequence[str] | None,
    verbose: bool,
) -> Iterator[SparkSession]:
    """A session as the options say, for as long as the job takes.

    That there is such a herd, with these logs, is looked at before: Spark takes its time to start.
    """
    settings = settings_of(conf)
    with logged(verbose):
        from stratalog.blocking import loop_thread
        from stratalog.pipeline.jobs import check_herd, find_logs, open_root, place_of
        from stratalog.pipeline.session import session

        store = open_root(place_of(root))
        loop_thread().run(lambda: find_logs(store, names=logs) if logs else check_herd(store))
        with session(master=master, remote=remote, conf=settings) as spark:
            yield spark


def settings_of(conf: Sequence[str] | None) -> dict[str, str]:
    """The settings of Spark that were given as KEY=VALUE."""
    return dict(map(_setting, conf or ()))


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"--conf is KEY=VALUE, not {text!r}")
    return key, value


def _stages(text: str) -> list[Stage]:
    known: dict[str, Stage] = {each: each for each in EVERY_STAGE}
    named = [each.strip() for each in text.split(",") if each.strip()]
    unknown = [each for each in named if each not in known]
    if unknown or not named:
        raise typer.BadParameter(
            f"no stage is called {text!r}; there are {', '.join(EVERY_STAGE)}"
            if not unknown
            else f"no stage is called {unknown[0]!r}; there are {', '.join(EVERY_STAGE)}"
        )
    return [known[each] for each in named]


@contextmanager
def _tasks(what: str, as_json: bool) -> Iterator[Callable[[int, int], None]]:
    """Shows how many of Spark's tasks have ended."""
    with output.progress(what, None, unit="tasks", shown=not as_json) as advance:
        yield lambda done, _: advance(done)


@contextmanager
def _asked_to_end() -> Iterator[threading.Event]:
    """Set when the process is asked to end: the round that is under way is finished."""
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


class _Rounds:
    """Shows the stages, and tells of each round when it has ended."""

    def __init__(self, show: OnEvent, report: Path | None, as_json: bool) -> None:
        self.is_damaged = False
        """Whether any round has found damage."""

        self._show = show
        self._report = report
        self._as_json = as_json

    def __call__(self, event: RunEvent) -> None:
        self._show(event)
        if event.round is None:
            return
        done = event.round
        self.is_damaged |= done.is_damaged
        is_remarkable = done.before is not None or not done.ok
        try:
            _tell(done, self._report, self._as_json, paged=is_remarkable or bool(self._report))
        except OSError as error:  # a full disk is no reason to stop keeping the herd
            log.warning("the report of a round could not be written: %s", error)
        if done.failure is not None:
            again = f"The next round is in {event.wait_s:,.0f} s. {done.failure.hint}"
            _show_failure(done, again, self._as_json)


def _show_failure(done: RunReport, hint: str, as_json: bool) -> None:
    """The error that has ended a run or a round, of which there is more to say."""
    assert done.failure is not None
    assert done.error is not None
    code = exits.exit_code(done.error)
    output.show_error(done.failure.kind, done.failure.message, hint, code, as_json)


# Telling


def _tell(done: RunReport, file: Path | None, as_json: bool, *, paged: bool = True) -> None:
    """The result, and the page with the charts."""
    from stratalog.pipeline.run import html_of

    moment = output.moment(done.started_us)[:19].replace(":", "").replace("-", "")
    path = file or Path(f"stratalog-run-{moment}Z.html")
    place = str(path.resolve()) if paged else None
    if paged:
        path.write_text(html_of(done), encoding="utf-8")
    if as_json:
        output.write_json({**done.to_dict(), "report": place})
        return
    display.tell_run(done)
    if place is not None:
        output.say(f"report: {place}")


def _plain(done: Materialized | HerdCollect) -> dict[str, object]:
    """A result as JSON, its errors as kinds and messages."""
    facts = {each.name: getattr(done, each.name) for each in fields(done)}
    facts["troubles"] = _plain_troubles(done.troubles)
    return {**facts, "records": done.records}


def _plain_troubles(troubles: Sequence[Trouble]) -> list[dict[str, str]]:
    return [
        {"log": each.log, "kind": each.error.kind, "message": redact(str(each.error))}
        for each in troubles
    ]


def _exit_for_troubles(troubles: Sequence[Trouble]) -> None:
    is_damaged = any(isinstance(each.error, Corrupt) for each in troubles)
    _exit_for(is_damaged=is_damaged, is_partial=bool(troubles))


def _exit_for(*, is_damaged: bool, is_partial: bool) -> None:
    """Tell the shell that something is damaged, or that some logs were not done."""
    if is_damaged:
        raise typer.Exit(exits.exit_code(Corrupt("")))
    if is_partial:
        raise typer.Exit(exits.exit_code(NotHappened("")))
