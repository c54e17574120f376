"""What `pipeline` shows: the stages while they run, and what they did in the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stratalog.cli import output
from stratalog.store.redaction import redact

if TYPE_CHECKING:
    from rich.table import Table

    from stratalog.pipeline.findings import Finding
    from stratalog.pipeline.herd_collect import HerdCollect
    from stratalog.pipeline.materialized import Materialized
    from stratalog.pipeline.run import OnEvent, RunEvent
    from stratalog.pipeline.run_report import RunReport, StageReport
    from stratalog.pipeline.scrub_results import HerdScrub

SHOWN_MAX = 20


# While it runs


@contextmanager
def stages_shown(*, shown: bool) -> Iterator[OnEvent]:
    """One line a stage, on standard error if that is a terminal. Gives what takes the events."""
    if not shown or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress as rich_progress

    columns = (
        rich_progress.SpinnerColumn(finished_text="✓"),
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(bar_width=24),
        rich_progress.TextColumn("{task.fields[detail]}", markup=False),
        rich_progress.TimeElapsedColumn(),
    )
    with rich_progress.Progress(*columns, console=output.console(stderr=True)) as bar:
        lines: dict[str, rich_progress.TaskID] = {}

        def show(event: RunEvent) -> None:
            if event.kind == "round":
                lines.clear()
                return
            stage = event.stage or ""
            if event.kind == "begun":
                lines[stage] = bar.add_task(f"{stage:<12}", total=None, detail="")
                return
            if event.report is not None:
                detail = _amounts(event.report)
                bar.update(lines[stage], total=1, completed=1, detail=detail)
            elif event.total:
                detail = f"{event.done:,} of {event.total:,} {event.unit}"
                bar.update(lines[stage], total=event.total, completed=event.done, detail=detail)

        yield show


def _amounts(report: StageReport) -> str:
    parts = [output.count(report.logs, "log"), output.count(report.records, "record")]
    if report.bytes_before != report.bytes_after:
        parts.append(f"{output.size(report.bytes_before)} → {output.size(report.bytes_after)}")
    elif report.bytes_after:
        parts.append(output.size(report.bytes_after))
    parts += [output.count(len(report.troubles), "trouble")] if report.troubles else []
    return ", ".join(parts)


# In the end


def tell_run(report: RunReport) -> None:
    """The stages, the herd before and after, and the proof."""
    table = _table("stage", "logs", "records", "bytes before", "after", "requests", "seconds")
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
    warn(report.troubles)
    for each in (*(proof.damages if proof else ()), *(report.findings or ())):
        output.complain("damage", "red", each)


def tell_materialized(done: Materialized) -> None:
    output.say(
        f"merged {output.count(done.records, 'record')} of {output.count(len(done.logs), 'log')} "
        f"({output.size(done.bytes_in)}) into {output.count(done.rows, 'row')} "
        f"({output.size(done.bytes_out)}); {done.unchanged:,} unchanged"
    )
    warn([str(each) for each in done.troubles])


def tell_collected(done: HerdCollect) -> None:
    output.say(
        f"collected {output.count(done.records, 'record')} of "
        f"{output.count(len(done.logs), 'log')} "
        f"({output.size(done.bytes_before)} → {output.size(done.bytes_after)}), "
        f"deleted {output.count(done.objects, 'object')}; looked at {done.looked_at:,}"
    )
    warn([str(each) for each in done.troubles])


def tell_scrubbed(done: HerdScrub) -> None:
    what = (
        f"{output.count(done.records, 'record')} in {output.count(done.fragments, 'fragment')} of "
        f"{output.count(len(done.logs), 'log')} ({output.size(done.num_bytes)})"
    )
    if done.damaged:
        table = _table("log", "kind", "offsets", "object and what it means", numbers=(2,))
        rows = [(log, each) for log in done.damaged for each in log.damages]
        for log, each in rows[:SHOWN_MAX]:
            offsets = "-" if each.start is None else f"{each.start:,} to {(each.limit or 0) - 1:,}"
            meaning = f"{each.path}\n{each.kind.meaning}\nnext: {each.kind.remedy}"
            table.add_row(log.label, each.kind.value, offsets, meaning)
        output.draw(table)
        output.say(f"{output.count(done.damages, 'damage')}; examined {what}")
        output.say(f"all of it is in the audit {done.run}")
    elif done.clean:
        output.say(f"clean: {what}")
        output.say(f"setsum {done.actual_sum}, as the manifests say; audit {done.run}")
    warn(done.troubles)


def tell_findings(findings: Sequence[Finding]) -> None:
    table = _table("log", "kind", "what it means", numbers=())
    for each in findings[:SHOWN_MAX]:
        meaning = f"{redact(each.detail)}\n{each.meaning}\nnext: {each.remedy}"
        table.add_row(each.log or "the herd", each.kind, meaning)
    output.draw(table)
    if len(findings) > SHOWN_MAX:
        output.say(f"and {len(findings) - SHOWN_MAX:,} more")


def warn(troubles: Sequence[str]) -> None:
    """What went wrong with single logs."""
    for each in troubles[:SHOWN_MAX]:
        output.complain("warning", "yellow", each)
    if len(troubles) > SHOWN_MAX:
        output.complain("warning", "yellow", f"and {len(troubles) - SHOWN_MAX:,} more")


def _table(*titles: str, numbers: Sequence[int] | None = None) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    right = range(1, len(titles)) if numbers is None else numbers
    for place, title in enumerate(titles):
        table.add_column(title, justify="right" if place in right else "left", overflow="fold")
    return table
