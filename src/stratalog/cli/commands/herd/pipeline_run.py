"""`pipeline run`: all jobs one after the other, once or round after round."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stratalog.cli import exits, output
from stratalog.cli.commands.herd import pipeline_display as display
from stratalog.cli.groups import option
from stratalog.cli.parameters import (
    AGE_S,
    DURATION,
    FILE_TO_WRITE,
    RECORDS,
    CursorName,
    Interval,
    Job,
    Keep,
    Key,
    Records,
    Root,
    Server,
    Sweep,
)
from stratalog.cli.reply import Reply
from stratalog.cli.spark_options import SparkOptions

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from stratalog.pipeline.run import OnEvent, RunEvent, RunOptions, RunReport, Stage

EVERY_STAGE: tuple[Stage, ...] = (
    "roll-up",
    "materialize",
    "compact",
    "collect",
    "scrub",
    "verify",
)
THOROUGH_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Plan:
    key: Key = None
    job: Job = "latest"
    server: Server = "worker"
    cursor: CursorName = "compaction"
    stages: str = option(
        "Which stages, with commas between them.", default=",".join(EVERY_STAGE), metavar="LIST"
    )
    once: bool = option("One round. This is the default.", default=False)
    every: float | None = option("Round after round, so far apart.", **DURATION)
    thorough: float | None = option(
        "With --every: scrub and verify only so often.", show_default="1d", **DURATION
    )
    age: float | None = option("Select what has been dirty for so long.", **DURATION)
    records: Records = RECORDS
    interval: Interval = 5.0
    sweep: Sweep = False
    keep: Keep = 10
    trust_policies: bool = option(
        "Let the SQL of policies use all that the session has. Then whoever may set a policy "
        "may run code here.",
        default=False,
    )
    report: Path | None = option(
        "Where the page with the charts goes. \\[here, named by the time]", **FILE_TO_WRITE
    )

    def check(self) -> None:
        if self.once and self.every is not None:
            raise typer.BadParameter("--once and --every exclude each other")
        if "materialize" in self.chosen() and self.key is None:
            raise typer.BadParameter(
                "--key says what the records are merged by; or leave the stage out"
            )

    def chosen(self) -> list[Stage]:
        """The stages, as they are called in the library."""
        known: dict[str, Stage] = {each: each for each in EVERY_STAGE}
        named = [each.strip() for each in self.stages.split(",") if each.strip()]
        unknown = [each for each in named if each not in known]
        if unknown or not named:
            wrong = unknown[0] if unknown else self.stages
            raise typer.BadParameter(
                f"no stage is called {wrong!r}; there are {', '.join(EVERY_STAGE)}"
            )
        return [known[each] for each in named]

    def options(self) -> RunOptions:
        from stratalog.pipeline.run import RunOptions

        default_age_s = 0.0 if self.every is None else AGE_S
        return RunOptions(
            job=self.job,
            cursor=self.cursor,
            age_s=default_age_s if self.age is None else self.age,
            records=self.records,
            interval_s=self.interval,
            sweep=self.sweep,
            keep_audits=self.keep,
            trust_policies=self.trust_policies,
        )


def run(root: Root, *, plan: Plan, spark: SparkOptions, reply: Reply) -> None:
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
    plan.check()
    from stratalog.pipeline.session import require_pyspark

    require_pyspark()
    from stratalog.pipeline.run import run_forever, run_pipeline

    options = plan.options()
    with (
        spark.over_herd(root, None, reply) as session,
        display.stages_shown(shown=not reply.as_json) as show,
    ):
        if plan.every is not None:
            rounds = Rounds(show, plan.report, reply)
            with _asked_to_end() as stop:
                run_forever(
                    session,
                    root,
                    server=plan.server,
                    merge=plan.key,
                    stages=plan.chosen(),
                    options=options,
                    every_s=plan.every,
                    thorough_every_s=THOROUGH_S if plan.thorough is None else plan.thorough,
                    stop=stop,
                    on_event=rounds,
                )
            exits.end(is_damaged=rounds.is_damaged)
            return
        done = run_pipeline(
            session,
            root,
            server=plan.server,
            merge=plan.key,
            stages=plan.chosen(),
            options=options,
            on_event=show,
        )
    _show(done, plan.report, reply)
    if done.error is not None:
        if not done.is_damaged:
            raise done.error
        _show_failure(done, done.error.hint, reply)
    exits.end(is_damaged=done.is_damaged, is_partial=bool(done.troubles))


@contextmanager
def _asked_to_end() -> Iterator[threading.Event]:
    """Set when the process is asked to end: the round that is under way is finished."""
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass
class Rounds:
    """Shows the stages, and the result of each round when it has ended."""

    show: OnEvent
    report: Path | None
    reply: Reply
    is_damaged: bool = False
    """Whether any round has found damage."""

    def __call__(self, event: RunEvent) -> None:
        self.show(event)
        if event.round is None:
            return
        done = event.round
        self.is_damaged |= done.is_damaged
        is_remarkable = done.before is not None or not done.ok
        try:
            _show(done, self.report, self.reply, paged=is_remarkable or bool(self.report))
        except OSError as error:  # a full disk is no reason to stop keeping the herd
            log.warning("the report of a round could not be written: %s", error)
        if done.failure is not None:
            again = f"The next round is in {event.wait_s:,.0f} s. {done.failure.hint}"
            _show_failure(done, again, self.reply)


def _show_failure(done: RunReport, hint: str, reply: Reply) -> None:
    """The error that has ended a run or a round, of which there is more to say."""
    assert done.failure is not None
    assert done.error is not None
    code = exits.exit_code(done.error)
    output.show_error(done.failure.kind, done.failure.message, hint, code, reply.as_json)


def _show(done: RunReport, file: Path | None, reply: Reply, *, paged: bool = True) -> None:
    from stratalog.pipeline.run import html_of

    moment = output.moment(done.started_us)[:19].replace(":", "").replace("-", "")
    path = file or Path(f"stratalog-run-{moment}Z.html")
    place = str(path.resolve()) if paged else None
    if paged:
        path.write_text(html_of(done), encoding="utf-8")
    reply.result(done, lambda done: {**done.to_dict(), "report": place}, display.show_run)
    if place is not None and not reply.as_json:
        output.say(f"report: {place}")
