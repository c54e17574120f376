"""`sweep`: delete the objects that nothing links, and show whose uploads are spared."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING

from stratalog.cli import output
from stratalog.cli.groups import option
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import redact

if TYPE_CHECKING:
    from stratalog.objectlog.collection import Amount, SweepReport
    from stratalog.objectlog.holds import StoredUploadGuard

UNKNOWN_SHOWN_MAX = 10
PINS_SHOWN_MAX = 5


def sweep(
    url: Url,
    dry_run: bool = option("Only say what would be deleted.", default=False),
    revoke: list[str] | None = option(
        "Spare the uploads of this stage no longer: its job is gone. May be repeated.",
        metavar="INCARNATION",
    ),
    older_manifest: bool = option(
        "Go on although an older manifest was put back: on purpose.", default=False
    ),
    *,
    reply: Reply,
) -> None:
    """Delete what crashed writers and interrupted work have left behind.

    Only objects that nothing links and nobody can link any more; files that are
    not the log's are left alone. Writers may go on meanwhile. The uploads of
    long jobs are spared as long as their stage is live. It is refused if what
    lies beside the manifest shows that this is an older one that was put back.

    Examples:
      stratalog sweep orders-log --dry-run
      stratalog sweep orders-log
      stratalog sweep orders-log --revoke 0123456789ab
    """
    from stratalog.objectlog.collection import sweep as sweep_log

    with reply.progress("sweeping", unit="objects") as advance:
        work = sweep_log(
            url,
            dry_run=dry_run,
            revoke=revoke or (),
            older_manifest=older_manifest,
            on_progress=lambda so_far: advance(so_far.listed + so_far.deleted),
        )
        report = reply.run(work)
    reply.result(report, _facts, _show)


def _facts(report: SweepReport) -> dict[str, object]:
    shown = [each.name for each in fields(report) if each.name not in ("sparing", "doubtful")]
    stages = [
        output.fields_of(each, "incarnation", "owner", "note", "epoch_us") for each in report.stages
    ]
    return {**output.fields_of(report, *shown), "url": redact(report.url), "stages": stages}


def _show(report: SweepReport) -> None:
    done = "would delete" if report.dry_run else "deleted"
    output.say(f"{done} {_amount(report.deleted)} that nothing links")
    output.say(
        f"listed {_amount(report.listed)}; the log leads to {_amount(report.reached)}"
        + (f", and only {_pins(report)} to {_amount(report.pinned)}" if report.pins else "")
    )
    if report.stages_removed:
        stages = output.count(report.stages_removed, "released stage")
        output.say(f"{done} {stages}")
    if report.ahead.objects:
        output.say(f"left {_amount(report.ahead)} beyond the tail: they go when it has passed them")
    if report.unknown.objects:
        output.say(f"left alone {_amount(report.unknown)} that are not the log's:")
        for path in report.unknown_paths[:UNKNOWN_SHOWN_MAX]:
            output.say(f"  {path}")
        if report.unknown.objects > UNKNOWN_SHOWN_MAX:
            output.say(f"  … {report.unknown.objects - UNKNOWN_SHOWN_MAX:,} more")
    if report.stages:
        _draw_stages(report)


def _pins(report: SweepReport) -> str:
    names = report.pins
    more = f" and {len(names) - PINS_SHOWN_MAX:,} more" if len(names) > PINS_SHOWN_MAX else ""
    return f"{'pin' if len(names) == 1 else 'pins'} {', '.join(names[:PINS_SHOWN_MAX])}{more}"


def _draw_stages(report: SweepReport) -> None:
    table = output.table("live stage", "owner", "age", "spared", "note")
    for stage in report.stages:
        spared = report.spared.get(stage.incarnation)
        table.add_row(
            stage.incarnation,
            stage.owner,
            _age(stage),
            _amount(spared) if spared else "nothing",
            stage.note,
        )
    output.draw(table)


def _amount(amount: Amount) -> str:
    return f"{output.count(amount.objects, 'object')} ({output.size(amount.bytes)})"


def _age(stage: StoredUploadGuard) -> str:
    """How long ago it was registered, by the clocks of two machines."""
    seconds = max(0, DEFAULT_RUNTIME.now_us() - stage.epoch_us) // 1_000_000
    return str(timedelta(seconds=seconds))
