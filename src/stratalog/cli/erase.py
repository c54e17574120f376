"""`erase`: take records out of a log for good, and write a certificate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.certificates import tell, write_certificate
from stratalog.cli.parameters import AsJson, Url, Verbose, in_a_directory, logged
from stratalog.cli.pipelines import Conf, Interval, Master, Remote, settings_of
from stratalog.errors import Invalid, NotHappened

if TYPE_CHECKING:
    from stratalog.indexset import IndexSet
    from stratalog.objectlog.certificate import Certificate
    from stratalog.objectlog.erasing import Erasable


def erase(
    url: Url,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="Which records go: a condition over offset, timestamp and body. Runs on Spark.",
        ),
    ] = None,
    offsets_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Which records go: an IndexSet, in its JSON or its binary form. Needs no Spark.",
        ),
    ] = None,
    finish: Annotated[
        bool,
        typer.Option(
            "--finish",
            help="Only finish what was begun, and look again at what was not complete.",
        ),
    ] = False,
    despite_holders: Annotated[
        bool,
        typer.Option(
            "--despite-holders",
            help="Erase although pins or forks hold such records. They go on to hold them.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell how many records there are, and who holds.")
    ] = False,
    note: Annotated[
        str, typer.Option(metavar="TEXT", help="Kept in the certificate, e.g. a case number.")
    ] = "",
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=in_a_directory,
            help="Write the certificate to this file as well. The log keeps it in any case.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    interval: Interval = 5.0,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Take records out of a log for good, and certify it.

    The fragments that have such a record are written anew without it, and the
    old objects are deleted. All other records keep their offsets. Pins and
    forks that hold such a record stop it, and are named. If the newest
    fragment has one, the log skips an offset, and a writer that is open is fenced.

    The certificate says what the log added up to before and after, and what
    went, and what stands against calling it gone: a bucket with versions, say.
    Of the condition only a hash is kept.

    Examples:
      stratalog erase orders --where "string(body) LIKE '%u-17%'" --dry-run
      stratalog erase orders --where "get_json_object(string(body), '$.user') = 'u-17'"
        --note "case 12" --certificate case-12.json
      stratalog erase orders --finish
    """
    if (where is not None) + (offsets_file is not None) + finish != 1:
        raise typer.BadParameter("give one of --where, --offsets-file and --finish")
    from stratalog import sync
    from stratalog.objectlog.options import CompactOptions

    options = CompactOptions(interval_s=interval)
    with logged(verbose):
        if finish:
            with output.progress("erasing", None, unit="fragments", shown=not as_json) as advance:
                done = sync.finish_erasures(
                    url, on_progress=lambda count, _: advance(count), options=options
                )
            _tell_finished(done, as_json)
            return
        doomed = _doomed(url, where, offsets_file, master, remote, conf)
        found = sync.preview_erasure(url, doomed)
        if dry_run:
            _tell_preview(found, as_json)
            return
        if not yes and found.offsets and (despite_holders or not found.holders):
            _ask(found)
        with output.progress("erasing", None, unit="fragments", shown=not as_json) as advance:
            made = sync.erase(
                url,
                doomed,
                despite_holders=despite_holders,
                query=where or "",
                note=note,
                on_progress=lambda count, _: advance(count),
                options=options,
            )
    if made is not None and certificate is not None:
        write_certificate(made, certificate)
    if made is None:
        _tell_nothing(as_json)
    else:
        tell(made, as_json)


def _doomed(
    url: str,
    where: str | None,
    offsets_file: Path | None,
    master: str | None,
    remote: str | None,
    conf: list[str] | None,
) -> IndexSet:
    from stratalog.cli.compact import check_there, loaded

    check_there(url)  # Spark takes its time to start
    if offsets_file is not None:
        return loaded(offsets_file)
    from stratalog.pipeline.log_erase import matching
    from stratalog.pipeline.session import session

    assert where is not None
    with session(master=master, remote=remote, conf=settings_of(conf)) as spark:
        return matching(spark, url, where)


def _ask(found: Erasable) -> None:
    """Go on only if a person says so."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise Invalid(
            "records are erased only by somebody who says so",
            hint="Add --yes, or run the command on a terminal and answer its question.",
        )
    count = len(found.offsets)
    output.complain("warning", "yellow", f"{output.count(count, 'record')} will be gone for ever")
    sys.stderr.write(f"Type {count} to erase: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != str(count):
        raise NotHappened("nothing was erased", hint=f"Type {count} if you want it to be.")


def _tell_preview(found: Erasable, as_json: bool) -> None:
    if as_json:
        output.write_json(
            {
                "records": len(found.offsets),
                "offsets": found.offsets.to_json(),
                "holders": [
                    {"kind": each.kind, "name": each.name, "records": each.records}
                    for each in found.holders
                ],
            }
        )
        return
    output.say(f"would erase {output.count(len(found.offsets), 'record')}")
    for each in found.holders:
        output.say(f"held by {each}: {output.count(each.records, 'record')}")


def _tell_nothing(as_json: bool) -> None:
    if as_json:
        output.write_json(None)
    else:
        output.say("there are no such records")


def _tell_finished(done: list[Certificate], as_json: bool) -> None:
    if as_json:
        from stratalog.cli.certificates import facts

        output.write_json([facts(each) for each in done])
        return
    if not done:
        output.say("nothing is left to finish")
    for each in done:
        tell(each, as_json=False)
