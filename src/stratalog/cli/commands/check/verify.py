"""`verify`: that a log is what it promises to be, shown from its stored bytes alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.cli import exits, output
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply
from stratalog.store import redact

if TYPE_CHECKING:
    from rich.text import Text

    from stratalog.objectlog.check import Check, VerifyReport


def verify(url: Url, *, reply: Reply) -> None:
    """Show that a log keeps its promises: structure, sums, continuity.

    Reads and hashes everything once, and changes nothing. Records of a soak are
    also checked by what they say about themselves. The exit code is 13 if
    something does not hold; `stratalog scrub` tells more about damage.

    Examples:
      stratalog verify orders-log
      stratalog verify s3://bucket/logs/orders --json | jq .checks
    """
    from stratalog.objectlog.check import verify as examine

    with reply.late_progress("verifying", unit="records") as on_progress:
        report = reply.run(examine(url, on_progress=on_progress))
    reply.result(report, lambda report: {**report.to_dict(), "url": redact(report.url)}, show)
    exits.end(is_damaged=not report.proven)


def show(report: VerifyReport) -> None:
    """Each promise, what does not hold, and the verdict."""
    output.say(redact(report.url))
    checks = output.table("promise", "status", "evidence", title="Promises")
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
        titles = ("kind", "offset", "where and what it means")
        findings = output.table(
            *titles, title="Findings", no_wrap=titles[:1], right=titles[1:2], fold=titles[2:]
        )
        for kind, where, offset, meaning in found[: output.SHOWN_MAX]:
            place = "-" if offset is None else f"{offset:,}"
            what = output.styled(kind, "bold red")
            findings.add_row(what, place, f"{where}\n{redact(meaning)}")
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
    if not check.held:
        return output.styled("broken", "bold red")
    if check.name == "self-description" and not report.described_records:
        return output.styled("-", "dim")
    return output.styled("held", "green")
