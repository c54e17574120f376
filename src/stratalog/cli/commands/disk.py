"""`disk`: what a node's data directory holds, and whether all of it is what was written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import exits, output
from stratalog.cli.groups import Commands
from stratalog.cli.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stratalog.segments import (
        CheckReport,
        DiskDamage,
        DiskReport,
        PartitionReport,
        RepairReport,
        SegmentReport,
    )

BAR_WIDTH_MAX = 60
SHADES = "·░▒▓█"
"""How much of a segment lives: nothing, up to a third, up to two thirds, less than all, all."""
LEFTOVERS_SHOWN_MAX = 10
TITLES = (
    "partition",
    "indexes",
    "epoch",
    "checkpoint",
    "live below it",
    "pending",
    "segments",
    "bytes",
    "live entries",
    "live bytes",
)

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The directory in which a node keeps its files.")
]

disks = Commands(
    "disk",
    help="A node's data directory: what it holds, and whether it is whole.",
)


@disks.command("info")
def info_of_disk(directory: Directory, *, reply: Reply) -> None:
    """Show the partitions of a data directory, their segments and how much of them lives.

    Changes nothing and takes no lock: it may be asked while the node runs.
    A partition is drawn with a mark for each segment, oldest first.

    Examples:
      stratalog disk info /var/lib/node-1
      stratalog disk info data --json | jq '.partitions[] | {name, last, checkpoint}'
    """
    from stratalog.segments import inspect_disk

    report = reply.run(inspect_disk(directory))
    reply.result(report, lambda report: report.to_dict(), _show_info)


@disks.command("check")
def check_of_disk(directory: Directory, *, reply: Reply) -> None:
    """Read a whole data directory, verify every checksum, and name every damage.

    Changes nothing and takes no lock: it may run while the node runs. The
    exit code is 13 if something is damaged.

    Examples:
      stratalog disk check /var/lib/node-1
      stratalog disk check data --json | jq '.damages[] | {kind, path, index}'
    """
    from stratalog.segments import check_disk

    with reply.late_progress("checking", unit="bytes") as on_progress:
        report = reply.run(check_disk(directory, on_progress=on_progress))
    reply.result(report, lambda report: report.to_dict(), _show_check)
    exits.end(is_damaged=not report.clean)


@disks.command("repair")
def repair_of_disk(
    directory: Directory,
    *,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Do it, and give up what it says.")
    ] = False,
    reply: Reply,
) -> None:
    """Say why a data directory cannot be opened, and what opening it would give up.

    Changes nothing without --accept-loss. With it, the directory can be opened
    again: what is whole stays, and what does not count any more is moved to the
    folder doubt. If nothing is refused, it removes what openings have kept there.
    The node must not run. The exit code is 13 if a repair is needed and not done.

    Examples:
      stratalog disk repair /var/lib/node-1
      stratalog disk repair /var/lib/node-1 --accept-loss
      stratalog disk repair data --json | jq '.losses[] | {partition, first}'
    """
    from stratalog.segments import repair_disk

    report = reply.run(repair_disk(directory, accept_loss=accept_loss))
    reply.result(report, lambda report: report.to_dict(), _show_repair)
    exits.end(is_damaged=bool(report.refused) and not report.done)


def _show_repair(report: RepairReport) -> None:
    output.say(report.path)
    if not report.refused:
        output.say("nothing to repair: a node can open it")
        verb = "removed" if report.done else "--accept-loss removes"
        _say_paths(report.removed, f"{verb} what was kept aside:")
        return
    output.say(f"refused: {report.refused}")
    verb = "given up" if report.done else "would be given up"
    output.say(f"{verb}:" if report.losses else f"nothing {verb}")
    for loss in report.losses:
        output.say(f"  {loss}")
    _say_paths(report.moved, f"{'moved' if report.done else '--accept-loss moves'} to doubt/:")
    output.say("repaired" if report.done else "nothing was changed: add --accept-loss to repair it")


def _say_paths(paths: Sequence[str], title: str) -> None:
    if not paths:
        return
    output.say(title)
    for path in paths[:LEFTOVERS_SHOWN_MAX]:
        output.say(f"  {path}")
    if len(paths) > LEFTOVERS_SHOWN_MAX:
        output.say(f"  and {len(paths) - LEFTOVERS_SHOWN_MAX:,} more")


def _show_info(report: DiskReport) -> None:
    output.say(f"{report.path}: disk {report.disk}, format {report.format}")
    waiting = sum(wal.entries for wal in report.wals)
    output.say(
        f"WAL: {output.count(len(report.wals), 'file')} of "
        f"{output.size(sum(wal.bytes for wal in report.wals))} with "
        f"{'1 entry' if waiting == 1 else f'{waiting:,} entries'} not yet in segments"
        f"{'; the last one is prepared for later' if _is_last_prepared(report) else ''}"
    )
    if report.partitions:
        table = output.table(*TITLES, right=TITLES[1:], fold=TITLES[:1])
        for each in report.partitions:
            table.add_row(*_row(each))
        output.draw(table)
        width = max(len(each.name) for each in report.partitions)
        for each in report.partitions:
            output.say(f"{each.name:<{width}}  {picture(each.segments)}".rstrip())
        output.say(f"segments, old to new; how much of them lives: {_legend()}")
    _say_leftovers(report.leftovers)
    for doubt in report.doubtful:
        where = doubt.path if doubt.is_kept else f"{doubt.path} from byte {doubt.position:,} on"
        what = "kept aside" if doubt.is_kept else "the next opening keeps them aside"
        output.say(f"{output.count(doubt.bytes, 'doubtful byte')} in {where}: {what}")


def _is_last_prepared(report: DiskReport) -> bool:
    return bool(report.wals) and report.wals[-1].is_prepared


def _row(each: PartitionReport) -> list[str]:
    from stratalog.segments.format import SEGMENT_OVERHEAD_BYTES

    entry_bytes = sum(segment.bytes - SEGMENT_OVERHEAD_BYTES for segment in each.segments)
    checkpoint = f"{each.checkpoint:,} ({output.size(each.checkpoint_bytes)})"
    return [
        each.name,
        f"{each.first:,} to {each.last:,}" if each.last >= each.first else f"up to {each.last:,}",
        f"{each.epoch:,}",
        checkpoint if each.checkpoint else "-",
        f"{each.live:,}",
        f"{each.pending:,}",
        f"{len(each.segments):,}",
        output.size(each.bytes),
        _share(each.live_entries, each.entries),
        _share(each.live_bytes, entry_bytes),
    ]


def _share(part: int, whole: int) -> str:
    """Never 0 % or 100 % unless it is."""
    if not whole:
        return "-"
    if part in (0, whole):
        return f"{100 * part // whole} %"
    return f"{min(99, max(1, round(100 * part / whole)))} %"


def picture(segments: Sequence[SegmentReport]) -> str:
    """A mark for each segment by how much of it lives; of very many, one for some neighbours."""
    width = min(len(segments), BAR_WIDTH_MAX)
    marks = []
    for place in range(width):
        start = place * len(segments) // width
        some = segments[start : (place + 1) * len(segments) // width]
        entries = sum(segment.entries for segment in some)
        marks.append(_mark(sum(segment.live_entries for segment in some), entries))
    return "".join(marks)


def _mark(alive: int, entries: int) -> str:
    if alive in (0, entries):
        return SHADES[-1] if alive else SHADES[0]
    return SHADES[1 + 3 * alive // entries]


def _legend() -> str:
    meanings = ("nothing", "up to a third", "up to two thirds", "more", "all")
    return ", ".join(f"{mark} {what}" for mark, what in zip(SHADES, meanings, strict=True))


def _show_check(report: CheckReport) -> None:
    output.say(report.path)
    _draw_findings("Damages", "bold red", report.damages)
    _draw_findings("Remarks", "yellow", report.remarks)
    _say_leftovers(report.leftovers)
    what = (
        f"{report.entries:,} entries in {output.count(report.segments, 'segment')} and "
        f"{output.count(report.wals, 'WAL file')} ({output.size(report.bytes)}) of "
        f"{output.count(report.partitions, 'partition')}"
    )
    gone = f"; {output.count(report.gone, 'file')} went meanwhile" if report.gone else ""
    if report.clean:
        output.say(f"clean: {what}{gone}")
    else:
        output.say(f"{output.count(len(report.damages), 'damage')}; examined {what}{gone}")


def _draw_findings(title: str, style: str, findings: Sequence[DiskDamage]) -> None:
    if not findings:
        return
    what = "file and what it means"
    table = output.table(
        "kind", "where", what, title=title, no_wrap=("kind", "where"), fold=(what,)
    )
    for found in findings:
        lines = [found.path, found.kind.meaning]
        lines += [found.detail] if found.detail else []
        lines += [f"next: {found.kind.remedy}"]
        table.add_row(output.styled(found.kind.value, style), _where(found), "\n".join(lines))
    output.draw(table)


def _where(found: DiskDamage) -> str:
    lines = [found.partition] if found.partition is not None else []
    if found.index is not None:
        more = f" and {found.count - 1:,} more" if found.count and found.count > 1 else ""
        lines.append(f"entry {found.index:,}{more}")
    if found.byte is not None:
        lines.append(f"byte {found.byte:,}")
    return "\n".join(lines) or "-"


def _say_leftovers(leftovers: Sequence[str]) -> None:
    _say_paths(
        leftovers,
        f"{output.count(len(leftovers), 'file')} that no record names: "
        "the next opening removes them, unless a node is making them or keeps them for later",
    )
