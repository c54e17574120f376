"""What the exit codes mean. One table: the help shows it, the program uses it. Keep stable."""

from typing import NamedTuple

import typer

from stratalog import errors
from stratalog.errors import StratalogError


class Exit(NamedTuple):
    """One exit code, the errors that lead to it, and what a script may conclude."""

    code: int
    kinds: tuple[type[StratalogError], ...]
    meaning: str


OK = 0
DEFECT = 1
USAGE = 2
NOT_HAPPENED = 5
CORRUPT = 13
UNSAFE = 15
INCOMPLETE = 16
INTERRUPTED = 130
BROKEN_PIPE = 141

EXITS = (
    Exit(OK, (), "done"),
    Exit(DEFECT, (StratalogError,), "a defect of stratalog, or of this machine"),
    Exit(USAGE, (errors.Invalid,), "the call is wrong: correct it"),
    Exit(3, (errors.NotFound,), "there is no such log, cursor or file"),
    Exit(4, (errors.Exists,), "it exists already"),
    Exit(
        NOT_HAPPENED,
        (errors.Conflict, errors.NotHappened),
        "it did not happen: look again, then decide",
    ),
    Exit(6, (errors.Fenced,), "it did not happen: another writer took over"),
    Exit(7, (errors.Sealed,), "it did not happen: the log is sealed"),
    Exit(8, (errors.Full,), "it did not happen: too much at once"),
    Exit(9, (errors.Unknown,), "it may have happened: read before you repeat it"),
    Exit(10, (errors.Trimmed,), "the records are gone on purpose"),
    Exit(11, (errors.Unavailable,), "the store does not answer: retry later"),
    Exit(12, (errors.Denied,), "credentials or permissions are missing"),
    Exit(CORRUPT, (errors.Corrupt,), "stored bytes are wrong: alarm a person"),
    Exit(14, (errors.Closed,), "something was closed too early"),
    Exit(UNSAFE, (), "doctor: the store is not safe for a log"),
    Exit(INCOMPLETE, (), "erase: done, but the records are not gone everywhere"),
    Exit(INTERRUPTED, (), "interrupted with Ctrl-C"),
    Exit(BROKEN_PIPE, (), "the program that read the output went away"),
)

_CODES = {kind: each.code for each in EXITS for kind in each.kinds}


def exit_code(error: StratalogError) -> int:
    """The code for an error: that of its class, or of the nearest class above it."""
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)


def end(*, is_damaged: bool, is_partial: bool = False) -> None:
    """Exit with a code if something is damaged, or if some logs were not done."""
    if is_damaged:
        raise typer.Exit(CORRUPT)
    if is_partial:
        raise typer.Exit(NOT_HAPPENED)


def exits_as_text() -> str:
    lines = (f"  {each.code:>3}  {each.meaning}" for each in EXITS)
    return "Exit codes:\n" + "\n".join(lines)
