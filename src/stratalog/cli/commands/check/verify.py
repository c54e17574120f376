"""`verify`: that a log is what it promises to be, shown from its stored bytes alone."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import typer

from stratalog.cli import exits, output
from stratalog.cli.parameters import AsJson, Url, Verbose, run
from stratalog.errors import Corrupt
from stratalog.store import redact

if TYPE_CHECKING:
    from rich.text import Text

    from stratalog.objectlog.check import Check, VerifyReport

FINDINGS_SHOWN_MAX = 20


def verify(url: Url, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show that a log keeps its promises: structure, sums, continuity.

    Reads and hashes everything once, and changes nothing. Records of a soak are
    also checked by what they say about themselves. The exit code is 13 if
    something does not hold; `stratalog scrub` tells more about damage.

    Examples:
      stratalog verify orders-log
      stratalog verify s3://bucket/logs/orders --json | jq .checks
    """

    async def work() -> VerifyReport:
        from stratalog.objectlog.check import verify as examine

        with ExitStack() as stack:
            bar = output.LateBar(stack, "verifying", unit="records", shown=not as_json)
            return await examine(url, on_progress=bar)

    report = run(work(), verbose=verbose)
    if as_json:
        output.write_json({**report.to_dict(), "url": redact(report.url)})
    else:
        tell(report)
    if not report.proven:
        raise typer.Exit(exits.exit_code(Corrupt("")))


def tell(report: VerifyReport) -> None:
    """Show each promise, what does not hold, and the verdict."""
    from rich.table import Table
    from rich.text import Text

    output.say(redact(report.url))
    checks = Table(title="Promises", title_justify="left")
    for title in ("promise", "status", "evidence"):
        checks.add_column(title)
    for check in report.checks:
        checks.add_row(check.name, _status(check, report), check.evidence)
    output.draw(checks)
    found = [
        *((each.kind.value, each.path, each.start, each.kind.meaning) for each in report.damages),
        *(
            (
                each.kind,
                f"run {each.run}, writer {each.writer}, {each.count} from number {each.first}",
                each.offset,
                each.detail or each.meaning,
            )
            for each in report.oddities
        ),
    ]
    if found:
        findings = Table(title="Findings", title_justify="left")
        findings.add_column("kind", no_wrap=True)
        findings.add_column("offset", justify="right")
        findings.add_column("where and what it means", overflow="fold")
        for kind, where, offset, meaning in found[:FINDINGS_SHOWN_MAX]:
            place = "-" if offset is None else f"{offset:,}"
            findings.add_row(Text(kind, "bold red"), place, f"{where}\n{redact(meaning)}")
        output.draw(findings)
    if report.proven:
        output.say(
            f"verified: {output.count(report.records, 'record')} in "
            f"{output.count(report.fragments, 'fragment')} ({output.size(report.num_bytes)})"
        )
    else:
        output.say(f"{output.count(len(found), 'finding')}; `stratalog scrub` tells what to do")


def _status(check: Check, report: VerifyReport) -> Text:
    """``-`` where there was nothing to look at: few logs have records of a soak."""
    from rich.text import Text

    if not check.held:
        return Text("broken", "bold red")
    if check.name == "self-description" and not report.described_records:
        return Text("-", "dim")
    return Text("held", "green")
