"""The options of the commands that run on Spark, which is loaded when a session is opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from stratalog.cli.groups import option
from stratalog.cli.reply import Reply, logged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SparkOptions:
    master: str | None = option(
        "Where Spark runs: local[4], spark://host:7077, yarn.", metavar="URL"
    )
    remote: str | None = option("A server of Spark Connect: sc://host:15002.", metavar="URL")
    conf: list[str] | None = option("A setting of Spark. May be repeated.", metavar="KEY=VALUE")

    def session(self) -> AbstractContextManager[SparkSession]:
        from stratalog.pipeline.session import session

        return session(master=self.master, remote=self.remote, conf=self._settings())

    @contextmanager
    def over_herd(
        self, root: str, logs: Sequence[str] | None, reply: Reply
    ) -> Iterator[SparkSession]:
        """A session for a job over a herd.

        That there is such a herd, with these logs, is checked first: Spark is slow to start.
        """
        self._settings()
        with logged(reply.verbose):
            from stratalog.blocking import loop_thread
            from stratalog.pipeline.jobs import check_herd, find_logs, place_of
            from stratalog.store import open_store

            store = open_store(place_of(root))
            loop_thread().run(lambda: find_logs(store, names=logs) if logs else check_herd(store))
            with self.session() as spark:
                yield spark

    def _settings(self) -> dict[str, str]:
        return dict(map(_setting, self.conf or ()))


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"--conf is KEY=VALUE, not {text!r}")
    return key, value
