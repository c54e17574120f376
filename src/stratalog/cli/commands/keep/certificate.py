"""`certificate`: what was erased from a log, and whether that is so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from stratalog.cli import output
from stratalog.cli.groups import Commands, option
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply, Verbose
from stratalog.cli.values import in_a_directory
from stratalog.errors import Corrupt, NotFound, StratalogError
from stratalog.store import open_store, redact

if TYPE_CHECKING:
    from stratalog.objectlog.erasure import Certificate, CertificateReport

Id = Annotated[str, typer.Argument(metavar="ID", help="As `certificate list` shows it.")]

COLOURS = {"holds": "green", "broken": "bold red", "unknown": "yellow"}

certificates = Commands(
    "certificate",
    help="Certificates of erasures: what was taken out of a log, in a form that others can check.",
)


@certificates.command("list")
def list_certificates(url: Url, *, reply: Reply) -> None:
    """Show what was erased from a log, oldest first.

    Example:
      stratalog certificate list orders
    """
    from stratalog.objectlog.erasure import list_certificates

    def show_damage(error: StratalogError) -> None:
        output.complain("damaged", "red", str(error))

    found = reply.run(list_certificates(url, on_damage=show_damage))
    reply.listing(
        found,
        facts,
        _row,
        columns=("id", "when", "records", "objects", "status", "note"),
        right=("records", "objects"),
        empty="nothing was erased from this log",
    )


def _row(certificate: Certificate) -> tuple[str, ...]:
    return (
        certificate.id,
        output.moment(certificate.done_us or certificate.begun_us),
        "-" if certificate.records is None else f"{certificate.records:,}",
        f"{certificate.deleted:,}",
        _status(certificate),
        certificate.note,
    )


@certificates.command("show")
def show_certificate(
    url: Url,
    certificate_id: Id,
    file: Path | None = option(
        "Write it to a file instead.", "--out", metavar="FILE", callback=in_a_directory
    ),
    verbose: Verbose = False,
) -> None:
    """Print a certificate as JSON.

    Example:
      stratalog certificate show orders 34e9ec58e6e44c5a --out case-12.json
    """
    from stratalog.objectlog.erasure import load_certificate

    found = Reply(verbose=verbose).run(load_certificate(url, certificate_id))
    if file is None:
        output.write(found.to_json() + b"\n")
    else:
        write_certificate(found, file)


@certificates.command("verify")
def verify_certificate(
    certificate: Annotated[
        str,
        typer.Argument(
            metavar="FILE|URL", help="A certificate in a file, or the log whose certificates it is."
        ),
    ],
    log: str | None = option(
        "The log that a file is about. Without it, the file alone.", metavar="URL"
    ),
    certificate_id: str | None = option("Of a log's certificates, this one.", "--id", metavar="ID"),
    where: str | None = option("Also check that it is about this condition.", metavar="SQL"),
    *,
    reply: Reply,
) -> None:
    """Check certificates: each by itself, and against its log.

    By itself: it hashes to what it says, and its sums balance. Against the
    log: the records are not there, nor the old objects, and what stayed still
    adds up. Needs no more than to read. Exits with 13 if one does not hold.

    Examples:
      stratalog certificate verify case-12.json
      stratalog certificate verify case-12.json --log s3://bucket/orders
      stratalog certificate verify orders --id 34e9ec58e6e44c5a
    """
    file = Path(certificate) if Path(certificate).is_file() else None

    async def work() -> list[CertificateReport]:
        from stratalog.objectlog.erasure import decode_certificate
        from stratalog.objectlog.erasure import verify_certificate as verify

        if file is not None:
            read = decode_certificate(file.read_bytes(), str(file))
            return [await verify(read, log, query=where)]
        chosen = await _stored(certificate, certificate_id, where)
        return [await verify(each, log or certificate, query=where) for each in chosen]

    reports = reply.run(work())
    reply.result(reports, lambda reports: [_checked(each) for each in reports], _show_reports)
    broken = [each for each in reports if not each.holds]
    if broken:
        raise Corrupt(
            f"the certificate {broken[0].certificate.id} does not hold",
            hint="Finish what was begun: `stratalog erase --finish`. Or keep the log as it is and "
            "find out who changed what.",
        )


async def _stored(url: str, certificate_id: str | None, where: str | None) -> list[Certificate]:
    """The certificates of a log that were asked for. ``NotFound`` if there is none to check."""
    from stratalog.objectlog.erasure import list_certificates, load_certificate
    from stratalog.objectlog.stored import load_manifest

    try:
        await load_manifest(open_store(url))
    except NotFound as error:
        raise NotFound(
            f"there is neither a file nor a log at {redact(url)}",
            hint="Name the file of a certificate, or the log that has some.",
            path=error.path,
        ) from None
    if certificate_id is not None:
        return [await load_certificate(url, certificate_id)]
    found = await list_certificates(url)
    chosen = [each for each in found if where is None or each.is_about(where)]
    if not chosen:
        about = "" if where is None else " by this condition"
        raise NotFound(
            f"nothing was erased from this log{about}",
            hint="`stratalog certificate list` shows what was.",
        )
    return chosen


def write_certificate(certificate: Certificate, file: Path) -> None:
    file.write_bytes(certificate.to_json() + b"\n")


def facts(certificate: Certificate) -> Any:
    return msgspec.json.decode(certificate.to_json())


def show(certificate: Certificate) -> None:
    records = output.count(certificate.records or 0, "record")
    objects = output.count(certificate.deleted, "object")
    output.say(f"erased {records}; deleted {objects} that had them")
    for name in ("before", "removed", "after"):
        output.say(f"{name:>8}  {getattr(certificate, f'setsum_{name}').hexdigest()}")
    if certificate.complete:
        output.say(f"certificate {certificate.id}")
        return
    _show_reasons(certificate)
    output.say(f"certificate {certificate.id}: the erasure is not complete")


def _show_reports(reports: list[CertificateReport]) -> None:
    for report in reports:
        title = f"Certificate {report.certificate.id}"
        table = output.table("check", "outcome", "what was found", title=title)
        for each in report.checks:
            outcome = output.styled(each.outcome, COLOURS[each.outcome])
            table.add_row(each.name, outcome, each.explanation)
        output.draw(table)
        _show_reasons(report.certificate)


def _show_reasons(certificate: Certificate) -> None:
    for reason in certificate.reasons:
        output.complain("not complete", "yellow", reason)


def _checked(report: CertificateReport) -> dict[str, object]:
    return {
        "id": report.certificate.id,
        "holds": report.holds,
        "complete": bool(report.certificate.complete),
        "reasons": list(report.certificate.reasons),
        "checks": report.checks,
    }


def _status(certificate: Certificate) -> str:
    if certificate.state != "done":
        return "not finished"
    return "complete" if certificate.complete else "not complete"
