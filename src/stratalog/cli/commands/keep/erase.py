"""`erase`: take records out of a log for good, and write a certificate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from stratalog.cli import output
from stratalog.cli.commands.keep.certificate import facts, show, write_certificate
from stratalog.cli.commands.keep.compact import check_there, loaded
from stratalog.cli.confirm import confirm, require_terminal
from stratalog.cli.exits import INCOMPLETE
from stratalog.cli.groups import option
from stratalog.cli.parameters import FILE_TO_READ, Interval, Url, Yes
from stratalog.cli.reply import Reply, logged
from stratalog.cli.spark_options import SparkOptions
from stratalog.cli.values import in_a_directory

if TYPE_CHECKING:
    from stratalog.indexset import IndexSet
    from stratalog.objectlog import CompactOptions
    from stratalog.objectlog.compaction import Rewrite
    from stratalog.objectlog.erasure import Certificate, Erasable, Eraser

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WhatGoes:
    where: str | None = option(
        "Which records go: a condition over offset, timestamp and body. Runs on Spark.",
        metavar="SQL",
    )
    offsets_file: Path | None = option(
        "Which records go: an IndexSet, in its JSON or its binary form. Needs no Spark.",
        **FILE_TO_READ,
    )
    finish: bool = option(
        "Only finish what was begun, and look again at what was not complete.", default=False
    )
    despite_holders: bool = option(
        "Erase although pins or forks hold such records. They go on to hold them.", default=False
    )
    older_manifest: bool = option(
        "Go on although an older manifest was put back: on purpose.", default=False
    )
    dry_run: bool = option(
        "Only say how many records there are, and what holds them.", default=False
    )
    note: str = option("Kept in the certificate, e.g. a case number.", default="", metavar="TEXT")
    certificate: Path | None = option(
        "Write the certificate to this file as well. The log keeps it in any case.",
        metavar="FILE",
        callback=in_a_directory,
    )
    yes: Yes = False

    def check(self) -> None:
        if (self.where is not None) + (self.offsets_file is not None) + self.finish != 1:
            raise typer.BadParameter("give one of --where, --offsets-file and --finish")
        terms = (self.dry_run, self.note, self.certificate is not None, self.despite_holders)
        if self.finish and any(terms):
            raise typer.BadParameter(
                "--finish goes on with what was said before: leave the rest out"
            )


def erase(
    url: Url, *, what: WhatGoes, interval: Interval = 5.0, spark: SparkOptions, reply: Reply
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
    what.check()
    from stratalog.objectlog import CompactOptions

    options = CompactOptions(interval_s=interval)
    task = _Erasure(url, what, options, reply)
    with logged(reply.verbose):
        check_there(url)  # Spark takes its time to start
        if what.finish:
            ended = task.finish()
        elif what.offsets_file is not None:
            ended = task.erase(loaded(what.offsets_file))
        else:
            ended = task.erase_on(spark)
    if what.certificate is not None and ended:
        write_certificate(ended[0], what.certificate)
    if not all(each.complete for each in ended):
        raise typer.Exit(INCOMPLETE)


@dataclass(frozen=True, slots=True)
class _Erasure:
    url: str
    what: WhatGoes
    options: CompactOptions
    reply: Reply

    def finish(self) -> list[Certificate]:
        done = self._work(lambda eraser: eraser.finish())
        self.reply.result(done, lambda done: [facts(each) for each in done], _show_finished)
        return done

    def erase_on(self, spark: SparkOptions) -> list[Certificate]:
        """Erase what fits the condition. Tasks of Spark look for it and write fragments anew."""
        assert self.what.where is not None
        with spark.session() as session:
            from stratalog.pipeline.compact import matching, rewriting_in_tasks
            from stratalog.pipeline.spark import absolute_url

            place = absolute_url(self.url)
            rewrite = rewriting_in_tasks(session, place, self.options)
            return self.erase(matching(session, place, self.what.where), rewrite)

    def erase(self, offsets: IndexSet, rewrite: Rewrite | None = None) -> list[Certificate]:
        from stratalog import sync

        what = self.what
        found = sync.preview_erasure(self.url, offsets)
        if what.dry_run:
            self.reply.result(found, _preview_facts, _show_preview)
            return []
        if not what.yes and found.offsets and (what.despite_holders or not found.holders):
            _ask(found)
        made = self._work(
            lambda eraser: eraser.erase(offsets, what.despite_holders, what.where or "", what.note),
            rewrite,
        )
        self.reply.result(made, lambda made: made and facts(made), _show_made)
        return [] if made is None else [made]

    def _work(self, work: Callable[[Eraser], Awaitable[T]], rewrite: Rewrite | None = None) -> T:
        from stratalog.blocking import loop_thread
        from stratalog.objectlog.erasure import Eraser

        with self.reply.progress("erasing", unit="fragments") as advance:
            eraser = Eraser(
                self.url,
                advance,
                options=self.options,
                rewrite=rewrite,
                older_manifest=self.what.older_manifest,
            )
            return loop_thread().run(lambda: work(eraser))


def _ask(found: Erasable) -> None:
    require_terminal("records are erased only after a person has confirmed it")
    count = len(found.offsets)
    output.warn(f"{output.count(count, 'record')} will be gone for ever")
    confirm(str(count), purpose="erase", otherwise="nothing was erased")


def _preview_facts(found: Erasable) -> object:
    return {
        "records": len(found.offsets),
        "offsets": found.offsets.to_json(),
        "holders": [output.fields_of(each, "kind", "name", "records") for each in found.holders],
    }


def _show_preview(found: Erasable) -> None:
    output.say(f"would erase {output.count(len(found.offsets), 'record')}")
    for each in found.holders:
        output.say(f"held by {each}: {output.count(each.records, 'record')}")


def _show_finished(done: list[Certificate]) -> None:
    if not done:
        output.say("nothing is left to finish")
    for each in done:
        show(each)


def _show_made(made: Certificate | None) -> None:
    if made is not None:
        show(made)
        return
    output.say("the log has no such records; nothing was erased, and there is no certificate")
    output.say("(what a killed job has left is not the log's: `stratalog sweep` deletes it)")
