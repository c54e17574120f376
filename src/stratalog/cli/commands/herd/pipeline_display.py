"""What `pipeline` shows: the stages while they run, and what they did in the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stratalog.cli import output
from stratalog.store import redact

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from stratalog.pipeline.check import Finding, HerdScrub, HerdVerify
    from stratalog.pipeline.collect import HerdCollect
    from stratalog.pipeline.materialize import Materialized
    from stratalog.pipeline.run import OnEvent, RunEvent, RunReport, StageReport


TITLES = ("stage", "logs", "records", "bytes before", "after", "requests", "seconds")


# While it runs


@contextmanager
def stages_shown(*, shown: bool) -> Iterator[OnEvent]:
    """One line a stage, on standard error if that is a terminal. Gives what takes the events."""
    if not shown or not sys.stderr.isatty():
        yield lambda _: None
        return
    lines = _StageLines()
    try:
        yield lines.show
    finally:
        lines.end()


class _StageLines:
    """The lines of one round after the other. Between them others may write."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._lines: dict[str, TaskID] = {}

    def show(self, event: RunEvent) -> None:
        if event.stage is None:
            self.end()
        elif event.kind == "begun":
            self._lines[event.stage] = self._begun().add_task(
                f"{event.stage:<12}", total=None, detail=""
            )
        elif event.report is not None:
            self._update(event.stage, 1, 1, _amounts(event.report))
        elif event.total:
            detail = f"{event.done:,} of {event.total:,} {event.unit}"
            self._update(event.stage, event.done, event.total, detail)

    def end(self) -> None:
        """Leave the lines as they are."""
        if self._bar is not None:
            self._bar.stop()
        self._bar, self._lines = None, {}

    def _update(self, stage: str, done: int, total: int, detail: str) -> None:
        if self._bar is not None:
            self._bar.update(self._lines[stage], completed=done, total=total, detail=detail)

    def _begun(self) -> Progress:
        from rich import progress

        if self._bar is None:
            self._bar = progress.Progress(
                progress.SpinnerColumn(finished_text="✓"),
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(bar_width=24),
                progress.TextColumn("{task.fields[detail]}", markup=False),
                progress.TimeElapsedColumn(),
                console=output.console(stderr=True),
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._bar.start()
        return self._bar


def _amounts(report: StageReport) -> str:
    parts = [output.count(report.logs, "log"), output.count(report.records, "record")]
    if report.bytes_before != report.bytes_after:
        parts.append(f"{output.size(report.bytes_before)} → {output.size(report.bytes_after)}")
    elif report.bytes_after:
        parts.append(output.size(report.bytes_after))
    parts += [output.count(len(report.troubles), "trouble")] if report.troubles else []
    return ", ".join(parts)


# In the end


def show_run(report: RunReport) -> None:
    """The stages, the herd before and after, and the proof."""
    table = output.table(*TITLES, right=TITLES[1:], fold=TITLES)
    for stage in report.stages:
        used = stage.requests
        table.add_row(
            stage.stage,
            f"{stage.logs:,}",
            f"{stage.records:,}",
            output.size(stage.bytes_before),
            output.size(stage.bytes_after),
            f"{used.class_a_requests + used.class_b_requests:,}",
            f"{stage.seconds:,.1f}",
        )
    if report.stages:
        output.draw(table)
    before, after = report.before, report.after
    if before is not None and after is not None:
        output.say(
            f"{output.count(after.logs, 'log')}: {before.records:,} → {after.records:,} records "
            f"({output.size(before.num_bytes)} → {output.size(after.num_bytes)}), outputs "
            f"{before.output_rows:,} → {after.output_rows:,} rows "
            f"({output.size(before.output_bytes)} → {output.size(after.output_bytes)})"
        )
    proof = report.proof
    if proof is not None:
        verdict = "add up" if proof.holds else "do not add up, or something is damaged"
        output.say(
            f"{output.count(proof.records, 'record')} hashed: {proof.compared:,} of "
            f"{output.count(proof.logs, 'log')} compared, and they {verdict} (audit {proof.audit})"
        )
        output.say(f"setsum {proof.actual_sum}")
    if report.findings == ():
        output.say("manifests, cursors, outputs and marks fit together")
    output.warn_of(report.troubles)
    for each in (*(proof.damages if proof else ()), *(report.findings or ())):
        output.complain("damage", "red", each)


def show_materialized(done: Materialized) -> None:
    output.say(
        f"merged {output.count(done.records, 'record')} of {output.count(len(done.logs), 'log')} "
        f"({output.size(done.bytes_in)}) into {output.count(done.rows, 'row')} "
        f"({output.size(done.bytes_out)}); {done.unchanged:,} unchanged"
    )
    output.warn_of([str(each) for each in done.troubles])


def show_collected(done: HerdCollect) -> None:
    output.say(
        f"collected {output.count(done.records, 'record')} of "
        f"{output.count(len(done.logs), 'log')} "
        f"({output.size(done.bytes_before)} → {output.size(done.bytes_after)}), "
        f"deleted {output.count(done.objects, 'object')}; looked at {done.looked_at:,}"
    )
    output.warn_of([str(each) for each in done.troubles])


def show_scrubbed(done: HerdScrub) -> None:
    what = (
        f"{output.count(done.records, 'record')} in {output.count(done.fragments, 'fragment')} of "
        f"{output.count(len(done.logs), 'log')} ({output.size(done.num_bytes)})"
    )
    if done.damaged:
        titles = ("log", "kind", "offsets", "object and what it means")
        table = output.table(*titles, right=("offsets",), fold=titles)
        rows = [(log, each) for log in done.damaged for each in log.damages]
        for log, each in rows[: output.SHOWN_MAX]:
            offsets = "-" if each.start is None else f"{each.start:,} to {(each.limit or 0) - 1:,}"
            meaning = f"{each.path}\n{each.kind.meaning}\nnext: {each.kind.remedy}"
            table.add_row(log.label, each.kind.value, offsets, meaning)
        output.draw(table)
        output.say(f"{output.count(done.damages, 'damage')}; examined {what}")
        output.say(f"all of it is in the audit {done.run}")
    elif done.clean:
        output.say(f"clean: {what}")
        output.say(f"setsum {done.actual_sum}, as the manifests say; audit {done.run}")
    output.warn_of(done.troubles)


def show_verified(done: HerdVerify) -> None:
    if done.ok:
        output.say(
            f"{output.count(len(done.logs), 'log')} with {output.count(done.records, 'record')} "
            f"({output.size(done.num_bytes)}) fit together; {done.waiting:,} with records that "
            f"wait, {output.count(done.marks, 'mark')}"
        )
        return
    _show_findings(done.findings)
    for trouble in done.troubles:
        output.say(redact(str(trouble)))
    unread = f", {output.count(len(done.troubles), 'log')} unread" if done.troubles else ""
    output.say(f"{output.count(len(done.findings), 'finding')}{unread}")


def _show_findings(findings: Sequence[Finding]) -> None:
    titles = ("log", "kind", "what it means")
    table = output.table(*titles, fold=titles)
    for each in findings[: output.SHOWN_MAX]:
        meaning = f"{redact(each.detail)}\n{each.meaning}\nnext: {each.remedy}"
        table.add_row(each.log or "the herd", each.kind, meaning)
    output.draw(table)
    if len(findings) > output.SHOWN_MAX:
        output.say(f"and {len(findings) - output.SHOWN_MAX:,} more")
