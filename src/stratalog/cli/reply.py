"""How a command is run, and how it replies: as text to people, or as JSON to programs."""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer

from stratalog.cli import output
from stratalog.cli.groups import option
from stratalog.store import redact

T = TypeVar("T")

Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show what the library logs, on standard error.")
]


@dataclass(frozen=True, slots=True)
class Reply:
    """The options of every command that has a result."""

    as_json: bool = option("Results and errors as JSON, for programs.", "--json", default=False)
    verbose: Verbose = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a command's work to its end. Ctrl-C cancels it, so that it can tidy up."""
        with logged(self.verbose):
            return asyncio.run(work)

    def progress(
        self, what: str, total: int | None = None, *, unit: str
    ) -> AbstractContextManager[output.Advance]:
        """A bar or a spinner, if a person looks on. See ``output.progress``."""
        return output.progress(what, total, unit=unit, shown=not self.as_json)

    @contextmanager
    def late_progress(self, what: str, *, unit: str) -> Iterator[Callable[[int, int], None]]:
        """The same, once its length is known. Gives a function of what is done, and of all."""
        with ExitStack() as stack:
            advance: output.Advance | None = None

            def on_progress(done: int, total: int) -> None:
                nonlocal advance
                if advance is None:
                    advance = stack.enter_context(self.progress(what, total, unit=unit))
                advance(done)

            yield on_progress

    def result(self, value: T, facts: Callable[[T], object], show: Callable[[T], object]) -> None:
        """The result of the command: one JSON document of its facts, or whatever shows it."""
        if self.as_json:
            output.write_json(facts(value))
        else:
            show(value)

    def done(self, facts: object, text: str) -> None:
        """The result of a command that has done one thing, in words."""
        self.result(text, lambda _: facts, output.say)

    def listing(
        self,
        found: Sequence[T],
        facts: Callable[[T], object],
        row: Callable[[T], tuple[str, ...]],
        *,
        columns: Sequence[str],
        right: Sequence[str],
        empty: str,
    ) -> None:
        """A result that is a list: its facts one by one, or a table with a row for each."""

        def show(found: Sequence[T]) -> None:
            if not found:
                output.say(empty)
                return
            table = output.table(*columns, right=right)
            for each in found:
                table.add_row(*row(each))
            output.draw(table)

        self.result(found, lambda found: [facts(each) for each in found], show)


@contextmanager
def logged(verbose: bool) -> Iterator[None]:
    if not verbose:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("stratalog")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _RedactingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))
