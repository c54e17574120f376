"""`collect`: give back the space before the lowest cursor, or say what would go and why.

A run that was cut short is finished by the next one, whoever starts it. So there is nothing to
resume and nothing to clean up: the command is simply run again.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.parameters import AsJson, Url, Verbose, run

if TYPE_CHECKING:
    from stratalog.objectlog import (
        Collected,
        Collector,
        CollectorOptions,
        Cursor,
        Garbage,
        Outlook,
        PlanState,
    )

WHAT_FOLLOWS = {
    "live": "not published yet: the next run publishes or cancels it",
    "published": "published: the next run finishes its deletions",
    "dead": "cancelled: the next run empties it",
    "unfitting": "it does not fit the tree any more: the next run cancels it",
}


def collect(
    url: Url,
    cut_off: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET", min=1, help="Keep everything from here on, even if no cursor does."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would go, and what holds the rest.")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="How long slow readers get before anything is deleted. Without it, 5 seconds.",
        ),
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Give up a collection that is not published yet.")
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Delete what lies before the lowest cursor. A log without a cursor is refused.

    First finishes what a run has left that was cut short. Appends, reads and
    other collectors may go on meanwhile.

    Examples:
      stratalog collect orders-log --dry-run
      stratalog collect orders-log
      stratalog collect orders-log --cut-off 1000
    """
    if cancel and (dry_run or cut_off is not None):
        raise typer.BadParameter("--cancel stands alone")
    from stratalog.objectlog import Collector, CollectorOptions

    options = CollectorOptions() if interval is None else CollectorOptions(interval_s=interval)
    collector = Collector(url, options=options)
    if cancel:
        _tell_cancelled(run(_cancel(collector), verbose=verbose), as_json)
    elif dry_run:
        _tell_outlook(*run(_look(url, collector, cut_off), verbose=verbose), as_json)
    else:
        work = _collect(collector, cut_off, options, as_json)
        _tell_collected(*run(work, verbose=verbose), as_json)


# Collecting


async def _collect(
    collector: Collector, cut_off: int | None, options: CollectorOptions, as_json: bool
) -> tuple[Collected, Garbage | None, str]:
    """What was done, what another run had left, and who holds the rest."""
    left, _ = await collector.plan()
    outlook = None if left else await collector.preview(cut_off)
    total = outlook.fragments if outlook else None
    what = f"collecting; deletes {options.interval_s:g} s after publishing"
    with output.progress(what, total, unit="fragments", shown=not as_json) as advance:
        collected = await collector.collect(cut_off, lambda removed: advance(removed.fragments))
    return collected, left, (outlook or await collector.preview(cut_off)).held_by


def _tell_collected(
    collected: Collected, left: Garbage | None, held_by: str, as_json: bool
) -> None:
    if as_json:
        ended = left.plan_id if left else None
        output.write_json({**asdict(collected), "held_by": held_by, "ended": ended})
        return
    if left is not None:
        output.say(f"ended {_plan_name(left)}, which was under way")
    if collected.records:
        records = output.count(collected.records, "record")
        fragments = output.count(collected.fragments, "fragment")
        size = output.size(collected.fragment_bytes)
        output.say(f"collected {records} in {fragments} ({size})")
    else:
        output.say("nothing to collect")
    removed = collected.removed
    if removed.requests:
        fragments = output.count(removed.fragments, "fragment")
        snapshots = output.count(removed.snapshots, "snapshot")
        requests = output.count(removed.requests, "request")
        output.say(f"deleted {fragments} and {snapshots} with {requests}")
    output.say(f"the log begins at offset {collected.first_offset}, held by {_who(held_by)}")


# Looking


async def _look(
    url: str, collector: Collector, cut_off: int | None
) -> tuple[Outlook, list[Cursor], Garbage | None, PlanState]:
    from stratalog.objectlog import CursorStore

    outlook = await collector.preview(cut_off)
    left, state = await collector.plan()
    return outlook, await CursorStore(url).list(), left, state


def _tell_outlook(
    outlook: Outlook,
    cursors: list[Cursor],
    left: Garbage | None,
    state: PlanState,
    as_json: bool,
) -> None:
    if as_json:
        output.write_json(_outlook_facts(outlook, cursors, left, state))
    else:
        _draw_outlook(outlook, cursors, left, state)


def _outlook_facts(
    outlook: Outlook, cursors: list[Cursor], left: Garbage | None, state: PlanState
) -> dict[str, object]:
    return {
        "first_offset": outlook.first_offset,
        "cut": outlook.cut,
        "held_by": outlook.held_by,
        "first_to_keep": outlook.first_to_keep,
        "records": outlook.records,
        "fragments": outlook.fragments,
        "fragment_bytes": outlook.fragment_bytes,
        "cursors": [
            {"name": each.name, "offset": each.offset, "holds": each.holds(outlook.first_offset)}
            for each in cursors
        ],
        "under_way": left
        and {
            "plan_id": left.plan_id,
            "writer": left.writer,
            "state": state.value,
            "first_to_keep": left.first_to_keep.offset,
            "records": left.records,
            "fragments": left.fragments,
        },
    }


def _draw_outlook(
    outlook: Outlook, cursors: list[Cursor], left: Garbage | None, state: PlanState
) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("cursor")
    table.add_column("offset", justify="right")
    table.add_column("")
    for cursor in cursors:
        table.add_row(cursor.name, f"{cursor.offset:,}", _verdict(cursor, outlook))
    output.draw(table)
    output.say("")
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    records = output.count(outlook.records, "record")
    fragments = output.count(outlook.fragments, "fragment")
    facts.add_row("cut", f"{outlook.cut:,}, held by {_who(outlook.held_by)}")
    facts.add_row("begins at", f"{outlook.first_offset:,}")
    facts.add_row("would begin at", f"{outlook.first_to_keep:,}")
    facts.add_row("would go", f"{records} in {fragments} ({output.size(outlook.fragment_bytes)})")
    if left is not None:
        facts.add_row("under way", f"{_plan_name(left)}; {WHAT_FOLLOWS[state.value]}")
    output.draw(facts)


def _verdict(cursor: Cursor, outlook: Outlook) -> str:
    held = cursor.holds(outlook.first_offset)
    if held is None:
        return "does not count: before the start"
    if held != cursor.offset:
        return f"counts as {held:,}: its way back was cut off"
    return "holds" if held == outlook.cut else "further on"


# Cancelling


async def _cancel(collector: Collector) -> Garbage | None:
    left, _ = await collector.plan()
    if left is not None:
        await collector.cancel()
    return left


def _tell_cancelled(left: Garbage | None, as_json: bool) -> None:
    if as_json:
        output.write_json({"cancelled": left.plan_id if left else None})
    elif left is None:
        output.say("no collection is under way")
    else:
        output.say(f"cancelled {_plan_name(left)}; nothing was deleted")


def _plan_name(plan: Garbage) -> str:
    return (
        f"the collection {plan.plan_id} of {plan.writer} up to offset {plan.first_to_keep.offset}"
    )


def _who(held_by: str) -> str:
    return held_by if " " in held_by else f"the cursor {held_by}"
