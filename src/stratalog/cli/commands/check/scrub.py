"""`scrub`: whether everything that a log has stored is what was written, and what is not."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stratalog.cli import exits, output
from stratalog.cli.groups import option
from stratalog.cli.parameters import FILE_TO_WRITE, Url
from stratalog.cli.reply import Reply
from stratalog.cli.values import decoded
from stratalog.store import redact

if TYPE_CHECKING:
    from stratalog.objectlog.check import Damage, RepairReport, ScrubReport

SAVE_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class How:
    processes: int | None = option(
        "How many processes hash; 0 is none but this one. \\[as many as help]", metavar="N", min=0
    )
    bodies: bool = option(
        "Read and hash every record, or only look that each object is there.",
        "--bodies/--no-bodies",
        default=True,
    )
    resume: Path | None = option(
        "Keep in this file how far it is, and go on from there if it exists.", **FILE_TO_WRITE
    )
    repair: bool = option("Rebuild damaged snapshots if that can be proven right.", default=False)


def scrub(url: Url, *, how: How, reply: Reply) -> None:
    """Read and hash the whole log, compare everything, and name every damage.

    Safe beside writers and collection. Changes nothing, unless --repair is
    given. The exit code is 13 if something is damaged.

    Examples:
      stratalog scrub orders-log
      stratalog scrub s3://bucket/logs/orders --resume scrub.json
      stratalog scrub orders-log --json | jq '.damages[] | {kind, path}'
    """
    from stratalog.objectlog import ScrubOptions
    from stratalog.objectlog.check import repair
    from stratalog.objectlog.check import scrub as examine

    options = ScrubOptions(processes=how.processes, bodies=how.bodies)
    with (
        closing(_ResumeFile(how.resume)) as file,
        reply.late_progress("scrubbing", unit="records") as advance,
    ):

        def on_progress(report: ScrubReport) -> None:
            first = report.first_offset
            advance(report.next_offset - first, report.limit_offset - first)
            file.note(report)

        earlier = file.load()
        work = examine(url, options=options, on_progress=on_progress, resume=earlier)
        report = file.last = reply.run(work)
    result = _Result(report, reply.run(repair(url, report)) if how.repair else None)
    reply.result(result, _facts, _show)
    exits.end(is_damaged=not result.is_well)


@dataclass(frozen=True, slots=True)
class _Result:
    report: ScrubReport
    repaired: RepairReport | None

    @property
    def is_well(self) -> bool:
        """Whether nothing is damaged, or nothing any more."""
        if self.report.clean:
            return True
        return self.report.finished and self.repaired is not None and self.repaired.complete


@dataclass(slots=True)
class _ResumeFile:
    """How far a scrub is, in a file that is always whole. Without a path, it is kept nowhere."""

    path: Path | None
    last: ScrubReport | None = None
    saved_s: float | None = None

    def load(self) -> ScrubReport | None:
        from stratalog.objectlog.check import ScrubReport

        if self.path is None:
            return None
        try:
            return decoded(self.path, ScrubReport.from_json)
        except FileNotFoundError:
            return None

    def note(self, report: ScrubReport) -> None:
        """Save it now and then."""
        self.last = report
        now_s = asyncio.get_running_loop().time()
        if self.saved_s is None or now_s >= self.saved_s + SAVE_EVERY_S:
            self.saved_s = now_s
            self._save(report)

    def close(self) -> None:
        """Keep what was done, unless nothing is left to do."""
        if self.last is None or self.path is None:
            return
        if self.last.finished:
            self.path.unlink(missing_ok=True)
        else:
            self._save(self.last)

    def _save(self, report: ScrubReport) -> None:
        if self.path is None:
            return
        written = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        written.write_bytes(report.to_json())
        os.replace(written, self.path)


def _facts(result: _Result) -> object:
    repaired = {} if result.repaired is None else result.repaired.to_dict()
    return {**result.report.to_dict(), "url": redact(result.report.url), **repaired}


def _show(result: _Result) -> None:
    report, repaired = result.report, result.repaired
    output.say(redact(report.url))
    _draw_findings("Damages", "bold red", report.damages)
    _draw_findings("Remarks", "yellow", report.remarks)
    if repaired is not None:
        for rebuilt in repaired.repaired:
            output.say(f"rebuilt {rebuilt.path} as {rebuilt.new_path}")
        for left in repaired.not_repaired:
            output.say(f"not repaired ({left.kind}) {left.path}: {left.reason}")
    what = (
        f"{output.count(report.records, 'record')} in {output.count(report.fragments, 'fragment')} "
        f"({output.size(report.num_bytes)}) and {output.count(report.snapshots, 'snapshot')}"
    )
    if report.clean:
        output.say(f"clean: {what}")
        return
    output.say(f"{output.count(len(report.damages), 'damage')}; examined {what}")
    if not report.finished:
        output.say(f"stopped before offset {report.next_offset:,}: too much is damaged")


def _draw_findings(title: str, style: str, findings: tuple[Damage, ...]) -> None:
    if not findings:
        return
    titles = ("kind", "offsets", "object and what it means")
    table = output.table(
        *titles, title=title, no_wrap=titles[:1], right=titles[1:2], fold=titles[2:]
    )
    for found in findings:
        offsets = "-" if found.start is None else f"{found.start:,} to {(found.limit or 0) - 1:,}"
        lines = [found.path, found.kind.meaning]
        if found.expected is not None or found.actual is not None:
            lines.append(f"expected {found.expected}, found {found.actual}")
        lines += [redact(found.detail)] if found.detail else []
        lines += [] if found.is_remark else [f"next: {found.kind.remedy}"]
        table.add_row(output.styled(found.kind.value, style), offsets, "\n".join(lines))
    output.draw(table)
