"""`collect`: give back the space before the lowest cursor, or say what would go and why.

The next run finishes one that was cut short, also if another process starts it. So there is nothing
to resume and nothing to clean up: run the command again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import typer

from stratalog.cli import output
from stratalog.cli.groups import option
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply

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


@dataclass(frozen=True, slots=True)
class How:
    cut_off: int | None = option(
        "Keep everything from here on, even if no cursor does.", metavar="OFFSET", min=1
    )
    dry_run: bool = option("Only say what would go, and what holds the rest.", default=False)
    interval: float | None = option(
        "How long slow readers get before anything is deleted. Without it, 5 seconds.",
        metavar="SECONDS",
        min=0,
    )
    cancel: bool = option("Give up a collection that is not published yet.", default=False)
    older_manifest: bool = option(
        "Go on although an older manifest was put back: on purpose.", default=False
    )


def collect(url: Url, *, how: How, reply: Reply) -> None:
    """Delete what lies before the lowest cursor. A log without a cursor is refused.

    First finishes what a run has left that was cut short. Appends, reads and
    other collectors may go on meanwhile.

    Examples:
      stratalog collect orders-log --dry-run
      stratalog collect orders-log
      stratalog collect orders-log --cut-off 1000
    """
    if how.cancel and (how.dry_run or how.cut_off is not None):
        raise typer.BadParameter("--cancel stands alone")
    from stratalog.objectlog import Collector, CollectorOptions

    interval_s = CollectorOptions.interval_s if how.interval is None else how.interval
    options = CollectorOptions(interval_s=interval_s, older_manifest=how.older_manifest)
    collector = Collector(url, options=options)
    if how.cancel:
        _cancel(collector, reply)
    elif how.dry_run:
        reply.result(reply.run(_look(url, collector, how.cut_off)), _look_facts, _show_look)
    else:
        work = _collect(collector, how.cut_off, options, reply)
        reply.result(reply.run(work), _done_facts, _show_done)


@dataclass(frozen=True, slots=True)
class _Done:
    collected: Collected
    left: Garbage | None
    held_by: str


async def _collect(
    collector: Collector, cut_off: int | None, options: CollectorOptions, reply: Reply
) -> _Done:
    left, _ = await collector.plan()
    outlook = None if left else await collector.preview(cut_off)
    total = outlook.fragments if outlook else None
    what = f"collecting; deletes {options.interval_s:g} s after publishing"
    with reply.progress(what, total, unit="fragments") as advance:
        collected = await collector.collect(cut_off, lambda removed: advance(removed.fragments))
    return _Done(collected, left, (outlook or await collector.preview(cut_off)).held_by)


def _done_facts(done: _Done) -> object:
    ended = done.left.plan_id if done.left else None
    return {**asdict(done.collected), "held_by": done.held_by, "ended": ended}


def _show_done(done: _Done) -> None:
    collected, removed = done.collected, done.collected.removed
    if done.left is not None:
        output.say(f"ended {_plan_name(done.left)}, which was under way")
    if collected.records:
        records = output.count(collected.records, "record")
        fragments = output.count(collected.fragments, "fragment")
        size = output.size(collected.fragment_bytes)
        output.say(f"collected {records} in {fragments} ({size})")
    else:
        output.say("nothing to collect")
    if removed.requests:
        fragments = output.count(removed.fragments, "fragment")
        snapshots = output.count(removed.snapshots, "snapshot")
        requests = output.count(removed.requests, "request")
        output.say(f"deleted {fragments} and {snapshots} with {requests}")
    output.say(f"the log begins at offset {collected.first_offset}, held by {_who(done.held_by)}")


@dataclass(frozen=True, slots=True)
class _Look:
    outlook: Outlook
    cursors: list[Cursor]
    left: Garbage | None
    state: PlanState


async def _look(url: str, collector: Collector, cut_off: int | None) -> _Look:
    from stratalog.objectlog import CursorStore

    outlook = await collector.preview(cut_off)
    left, state = await collector.plan()
    return _Look(outlook, await CursorStore(url).list(), left, state)


def _look_facts(look: _Look) -> object:
    outlook, left = look.outlook, look.left
    return {
        **output.fields_of(outlook, "first_offset", "cut", "held_by", "first_to_keep"),
        **output.fields_of(outlook, "records", "fragments", "fragment_bytes"),
        "cursors": [
            {"name": each.name, "offset": each.offset, "holds": each.holds(outlook.first_offset)}
            for each in look.cursors
        ],
        "under_way": left
        and {
            **output.fields_of(left, "plan_id", "writer"),
            "state": look.state.value,
            "first_to_keep": left.first_to_keep.offset,
            **output.fields_of(left, "records", "fragments"),
        },
    }


def _show_look(look: _Look) -> None:
    outlook = look.outlook
    table = output.table("cursor", "offset", "", right=("offset",))
    for cursor in look.cursors:
        table.add_row(cursor.name, f"{cursor.offset:,}", _verdict(cursor, outlook))
    output.draw(table)
    output.say("")
    facts = output.facts()
    records = output.count(outlook.records, "record")
    fragments = output.count(outlook.fragments, "fragment")
    facts.add_row("cut", f"{outlook.cut:,}, held by {_who(outlook.held_by)}")
    facts.add_row("begins at", f"{outlook.first_offset:,}")
    facts.add_row("would begin at", f"{outlook.first_to_keep:,}")
    facts.add_row("would go", f"{records} in {fragments} ({output.size(outlook.fragment_bytes)})")
    if look.left is not None:
        what = f"{_plan_name(look.left)}; {WHAT_FOLLOWS[look.state.value]}"
        facts.add_row("under way", what)
    output.draw(facts)


def _verdict(cursor: Cursor, outlook: Outlook) -> str:
    held = cursor.holds(outlook.first_offset)
    if held is None:
        return "does not count: before the start"
    if held != cursor.offset:
        return f"counts as {held:,}: its way back was cut off"
    return "holds" if held == outlook.cut else "further on"


def _cancel(collector: Collector, reply: Reply) -> None:
    async def work() -> Garbage | None:
        left, _ = await collector.plan()
        if left is not None:
            await collector.cancel()
        return left

    left = reply.run(work())
    if left is None:
        reply.done({"cancelled": None}, "no collection is under way")
    else:
        text = f"cancelled {_plan_name(left)}; nothing was deleted"
        reply.done({"cancelled": left.plan_id}, text)


def _plan_name(plan: Garbage) -> str:
    return (
        f"the collection {plan.plan_id} of {plan.writer} up to offset {plan.first_to_keep.offset}"
    )


def _who(held_by: str) -> str:
    return held_by if " " in held_by else f"the cursor {held_by}"
