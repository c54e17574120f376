"""`scrub`: whether everything that a log has stored is what was written, and what is not."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import exits, output
from stratalog.cli.parameters import AsJson, Url, Verbose, in_a_directory, run
from stratalog.errors import Corrupt, Invalid
from stratalog.store import redact

if TYPE_CHECKING:
    from stratalog.objectlog.check import Damage, RepairReport, ScrubReport

SAVE_EVERY_S = 1.0


def scrub(
    url: Url,
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="How many processes hash; 0 is none but this one. \\[as many as help]",
        ),
    ] = None,
    bodies: Annotated[
        bool,
        typer.Option(
            "--bodies/--no-bodies",
            help="Read and hash every record, or only look that each object is there.",
        ),
    ] = True,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            callback=in_a_directory,
            help="Keep in this file how far it is, and go on from there if it exists.",
        ),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Rebuild damaged snapshots if that can be proven right."),
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Read and hash the whole log, compare everything, and name every damage.

    Safe beside writers and collection. Changes nothing, unless --repair is
    given. The exit code is 13 if something is damaged.

    Examples:
      stratalog scrub orders-log
      stratalog scrub s3://bucket/logs/orders --resume scrub.json
      stratalog scrub orders-log --json | jq '.damages[] | {kind, path}'
    """
    from stratalog.objectlog import ScrubOptions

    options = ScrubOptions(processes=processes, bodies=bodies)

    async def work() -> tuple[ScrubReport, RepairReport | None]:
        from stratalog.objectlog.check import repair as repairing
        from stratalog.objectlog.check import scrub as examine

        with ExitStack() as stack:
            note = _Progress(stack, None if resume is None else _ResumeFile(resume), as_json)
            report = await examine(url, options=options, on_progress=note, resume=note.earlier())
            note.end(report)
        return report, await repairing(url, report) if repair else None

    report, repaired = run(work(), verbose=verbose)
    if as_json:
        facts = {**report.to_dict(), "url": redact(report.url)}
        output.write_json(facts if repaired is None else {**facts, **repaired.to_dict()})
    else:
        _draw(report, repaired)
    if not report.clean and not (report.finished and repaired is not None and repaired.complete):
        raise typer.Exit(exits.exit_code(Corrupt("")))


class _ResumeFile:
    """How far a scrub is, in a file that is always whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved_s: float | None = None

    def load(self) -> ScrubReport | None:
        from stratalog.objectlog.check import ScrubReport

        try:
            return ScrubReport.from_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except Invalid as error:
            raise Invalid(f"{self._path}: {error}", hint=error.hint) from None

    def save_sometimes(self, report: ScrubReport) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._saved_s is None or now_s >= self._saved_s + SAVE_EVERY_S:
            self._saved_s = now_s
            self.save(report)

    def save(self, report: ScrubReport) -> None:
        written = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        written.write_bytes(report.to_json())
        os.replace(written, self._path)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


class _Progress:
    """Draws the bar and keeps the file. What was done is kept however the scrub ends."""

    def __init__(self, stack: ExitStack, file: _ResumeFile | None, as_json: bool) -> None:
        self._stack = stack
        self._file = file
        self._shown = not as_json
        self._advance: output.Advance | None = None
        self._last: ScrubReport | None = None
        stack.callback(self._keep)

    def earlier(self) -> ScrubReport | None:
        return None if self._file is None else self._file.load()

    def __call__(self, report: ScrubReport) -> None:
        self._last = report
        if self._advance is None:
            total = report.limit_offset - report.first_offset
            self._advance = self._stack.enter_context(
                output.progress("scrubbing", total, unit="records", shown=self._shown)
            )
        self._advance(report.next_offset - report.first_offset)
        if self._file is not None:
            self._file.save_sometimes(report)

    def end(self, report: ScrubReport) -> None:
        self._last = report

    def _keep(self) -> None:
        if self._file is None or self._last is None:
            return
        if self._last.finished:
            self._file.remove()
        else:
            self._file.save(self._last)


def _draw(report: ScrubReport, repaired: RepairReport | None) -> None:
    output.say(redact(report.url))
    _draw_findings("Damages", "bold red", report.damages)
    _draw_findings("Remarks", "yellow", report.remarks)
    for rebuilt in repaired.repaired if repaired is not None else ():
        output.say(f"rebuilt {rebuilt.path} as {rebuilt.new_path}")
    for left in repaired.not_repaired if repaired is not None else ():
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
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    table.add_column("kind", no_wrap=True)
    table.add_column("offsets", justify="right")
    table.add_column("object and what it means", overflow="fold")
    for found in findings:
        offsets = "-" if found.start is None else f"{found.start:,} to {(found.limit or 0) - 1:,}"
        lines = [found.path, found.kind.meaning]
        if found.expected is not None or found.actual is not None:
            lines.append(f"expected {found.expected}, found {found.actual}")
        lines += [redact(found.detail)] if found.detail else []
        lines += [] if found.is_remark else [f"next: {found.kind.remedy}"]
        table.add_row(Text(found.kind.value, style), offsets, "\n".join(lines))
    output.draw(table)
