"""`erase`: take records out of a log for good, and write a certificate."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from stratalog.cli import output
from stratalog.cli.commands.herd.pipeline import Conf, Interval, Master, Remote, settings_of
from stratalog.cli.commands.keep.certificate import facts, tell, write_certificate
from stratalog.cli.exits import INCOMPLETE
from stratalog.cli.parameters import AsJson, Url, Verbose, in_a_directory, logged
from stratalog.errors import Invalid, NotHappened

if TYPE_CHECKING:
    from stratalog.indexset import IndexSet
    from stratalog.objectlog import CompactOptions
    from stratalog.objectlog.compaction import Rewrite
    from stratalog.objectlog.erasure import Certificate, Erasable, Eraser

T = TypeVar("T")


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
    Of the condition only a hash is kept. Exits with 16 if something stands
    against it; `--finish` looks again.

    Examples:
      stratalog erase orders --where "string(body) LIKE '%u-17%'" --dry-run
      stratalog erase orders --where "get_json_object(string(body), '$.user') = 'u-17'"
        --note "case 12" --certificate case-12.json
      stratalog erase orders --finish
    """
    if (where is not None) + (offsets_file is not None) + finish != 1:
        raise typer.BadParameter("give one of --where, --offsets-file and --finish")
    if finish and (dry_run or note or certificate is not None or despite_holders):
        raise typer.BadParameter("--finish goes on with what was said before: leave the rest out")
    from stratalog.cli.commands.keep.compact import check_there, loaded
    from stratalog.objectlog import CompactOptions

    options = CompactOptions(interval_s=interval)
    task = _Erasure(url, despite_holders, dry_run, where or "", note, yes, options, as_json)
    with logged(verbose):
        check_there(url)  # Spark takes its time to start
        if finish:
            ended = task.finish()
        elif offsets_file is not None:
            ended = task.erase(loaded(offsets_file))
        else:
            from stratalog.pipeline.session import require_pyspark, session

            require_pyspark()
            from stratalog.pipeline.compact import matching, rewriting_in_tasks
            from stratalog.pipeline.spark import absolute_url

            assert where is not None
            with session(master=master, remote=remote, conf=settings_of(conf)) as spark:
                place = absolute_url(url)
                rewrite = rewriting_in_tasks(spark, place, options)
                ended = task.erase(matching(spark, place, where), rewrite)
    if certificate is not None and ended:
        write_certificate(ended[0], certificate)
    if not all(each.complete for each in ended):
        raise typer.Exit(INCOMPLETE)


@dataclass(frozen=True, slots=True)
class _Erasure:
    """What was asked for."""

    url: str
    despite_holders: bool
    dry_run: bool
    where: str
    note: str
    yes: bool
    options: CompactOptions
    as_json: bool

    def finish(self) -> list[Certificate]:
        done = self._work(lambda eraser: eraser.finish())
        if self.as_json:
            output.write_json([facts(each) for each in done])
        elif not done:
            output.say("nothing is left to finish")
        else:
            for each in done:
                tell(each, as_json=False)
        return done

    def erase(self, doomed: IndexSet, rewrite: Rewrite | None = None) -> list[Certificate]:
        from stratalog import sync

        found = sync.preview_erasure(self.url, doomed)
        if self.dry_run:
            _tell_preview(found, self.as_json)
            return []
        if not self.yes and found.offsets and (self.despite_holders or not found.holders):
            _ask(found)
        made = self._work(
            lambda eraser: eraser.erase(doomed, self.despite_holders, self.where, self.note),
            rewrite,
        )
        if made is None:
            _tell_nothing(self.as_json)
            return []
        tell(made, self.as_json)
        return [made]

    def _work(self, work: Callable[[Eraser], Awaitable[T]], rewrite: Rewrite | None = None) -> T:
        from stratalog.blocking import loop_thread
        from stratalog.objectlog.erasure import Eraser

        with output.progress("erasing", None, unit="fragments", shown=not self.as_json) as advance:
            eraser = Eraser(
                self.url, lambda done, _: advance(done), options=self.options, rewrite=rewrite
            )
            return loop_thread().run(lambda: work(eraser))


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
        output.say("the log has no such records; nothing was erased, and there is no certificate")
        output.say("(what a killed job has left is not the log's: `stratalog sweep` deletes it)")
