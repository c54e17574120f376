"""`doctor`: whether a store keeps the promises that a log is built on, and how fast it is."""

import typer

from stratalog.cli import exits, output
from stratalog.cli.groups import option
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply
from stratalog.store import Report, examine, open_store, redact

STYLES = {"held": "green", "broken": "bold red", "not-checked": "yellow"}


def doctor(
    url: Url,
    writers: int = option("How many writers race.", default=4, metavar="N", min=2, max=64),
    rounds: int = option("How many races.", default=25, metavar="N", min=1, max=10_000),
    *,
    reply: Reply,
) -> None:
    """Examine a store: race writers, check each guarantee, measure.

    Writes below doctor/ at this place and removes it again; logs there are not
    touched.
    The exit code is 15 if a guarantee is broken or could not be checked.

    Examples:
      stratalog doctor s3://bucket/logs
      stratalog doctor s3://bucket/logs --json | jq '.checks[] | select(.status != "held")'
    """
    store = open_store(url)
    with reply.progress("examining", unit="steps") as advance:
        work = examine(
            store, writers=writers, rounds=rounds, progress=lambda _name, done, _of: advance(done)
        )
        report = reply.run(work)
    reply.result(report, _facts, _show)
    if not report.held:
        raise typer.Exit(exits.UNSAFE)


def _facts(report: Report) -> object:
    return {
        "url": redact(report.url),
        "safe": report.held,
        "checks": report.checks,
        "measurements": report.measurements,
    }


def _show(report: Report) -> None:
    output.say(redact(report.url))
    checks = output.table("guarantee", "status", "evidence", title="Guarantees")
    for check in report.checks:
        detail = redact(check.detail)
        if check.status != "held":
            detail += f"\nWithout it: {check.what_it_means}"
        checks.add_row(check.name, output.styled(check.status, STYLES[check.status]), detail)
    output.draw(checks)
    if report.measurements:
        titles = ("what", "value", "samples")
        figures = output.table(*titles, title="Measurements", right=titles[1:])
        for each in report.measurements:
            figures.add_row(each.name, f"{each.value:,.1f} {each.unit}", f"{each.samples}")
        output.draw(figures)
    if report.held:
        output.say("This store is safe for a log.")
    else:
        output.say("Do not keep a log on this store: see what is not held above.")
