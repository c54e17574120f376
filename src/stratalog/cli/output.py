"""What people and programs see: results on standard output, everything else on standard error.

Both often go to the same place, so results are flushed before anything goes to standard error.

Text from outside (URLs, names, records, messages) is never interpreted as markup. Rich is loaded
when something is drawn, so that a command that only prints starts quickly.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from stratalog.store import redact

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

PIPE_WIDTH = 160
SHOWN_MAX = 20
"""How many warnings or findings are shown one by one."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Advance(Protocol):
    """Takes how much is done by now. The total is known already; one that is given is ignored."""

    def __call__(self, done: int, total: int = 0, /) -> None: ...


def console(*, stderr: bool = False) -> Console:
    """A console on the current stream. A pipe has no width, so tables get a generous one."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if stream.isatty() else PIPE_WIDTH,
    )


def say(text: str) -> None:
    """One line of result for people."""
    sys.stdout.write(f"{text}\n")


def say_all(lines: Iterable[str]) -> None:
    """Lines of result for people."""
    for each in lines:
        say(each)


def draw(picture: RenderableType) -> None:
    """A table or a tree for people."""
    screen = console()
    if screen.is_terminal:
        screen.print(picture)
        return
    with screen.capture() as drawn:
        screen.print(picture)
    for line in drawn.get().splitlines():
        say(line.rstrip())


def table(
    *columns: str,
    title: str | None = None,
    right: Collection[str] = (),
    fold: Collection[str] = (),
    no_wrap: Collection[str] = (),
) -> Table:
    """An empty table: with a frame if it has a title of its own, else plain."""
    from rich.table import Table

    if title is None:
        made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    else:
        made = Table(title=title, title_justify="left")
    for name in columns:
        made.add_column(
            name,
            justify="right" if name in right else "left",
            overflow="fold" if name in fold else "ellipsis",
            no_wrap=name in no_wrap,
        )
    return made


def facts(*, overflow: Literal["fold", "ellipsis"] = "ellipsis") -> Table:
    """An empty table of names and what they stand for."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(style="bold")
    made.add_column(overflow=overflow)
    return made


def styled(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(text, style)


def write(data: bytes) -> None:
    """Result bytes, exactly as they are."""
    sys.stdout.buffer.write(data)


def write_json(document: object) -> None:
    """One JSON document on one line, for programs."""
    write(_as_json(document))


def _as_json(document: object) -> bytes:
    return msgspec.json.encode(document) + b"\n"


def _results_first() -> None:
    """Flush results before anything goes to standard error. A failure is reported at exit."""
    with suppress(OSError):
        sys.stdout.flush()


def complain(label: str, colour: str, message: str) -> None:
    """A labelled line on standard error, the label in colour on a terminal."""
    from rich.text import Text

    _results_first()
    line = Text.assemble((f"{label}: ", f"bold {colour}"), (redact(message), colour))
    console(stderr=True).print(line, soft_wrap=True)


def warn(message: str) -> None:
    """What a person should know although the command goes on."""
    complain("warning", "yellow", message)


def warn_of(messages: Sequence[str]) -> None:
    """The first of many warnings, and how many more there are."""
    for each in messages[:SHOWN_MAX]:
        warn(each)
    if len(messages) > SHOWN_MAX:
        warn(f"and {len(messages) - SHOWN_MAX:,} more")


def show_error(
    kind: str,
    message: str,
    hint: str,
    code: int,
    as_json: bool,
    facts: Mapping[str, object] | None = None,
) -> None:
    """Why the command failed, and what to do next."""
    if as_json:
        _results_first()
        document = {
            "kind": kind,
            "message": redact(message),
            "hint": redact(hint),
            "exit_code": code,
            **(facts or {}),
        }
        sys.stderr.write(_as_json(document).decode())
        return
    complain("error", "red", message)
    if hint:
        from rich.text import Text

        line = Text.assemble(("next: ", "bold"), redact(hint))
        console(stderr=True).print(line, soft_wrap=True)


@contextmanager
def progress(what: str, total: int | None, *, unit: str, shown: bool) -> Iterator[Advance]:
    """A bar if the total is known, else a spinner; on standard error if that is a terminal.

    Gives a function that takes how much is done by now.
    """
    if not shown or not sys.stderr.isatty():
        yield lambda _done, _total=0: None
        return
    from rich import progress as rich_progress

    amount = (
        rich_progress.DownloadColumn(binary_units=True)
        if unit == "bytes"
        else rich_progress.MofNCompleteColumn()
    )
    columns = (
        rich_progress.SpinnerColumn(),
        rich_progress.TextColumn("{task.description}", markup=False),
        *((rich_progress.BarColumn(), rich_progress.TimeRemainingColumn()) if total else ()),
        amount,
        rich_progress.TimeElapsedColumn(),
    )
    with rich_progress.Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, _total=0: bar.update(task, completed=done)


def fields_of(value: object, *names: str) -> dict[str, object]:
    """A value as JSON shows it to programs, under the names used there."""
    return {name: getattr(value, name) for name in names}


def count(number: int, noun: str) -> str:
    """``1 record``, ``12,345 records``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(number: float) -> str:
    """Bytes for people: ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(number) < 1024 or unit == "TiB":
            break
        number /= 1024
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


@functools.lru_cache(maxsize=64)
def moment(timestamp_us: int) -> str:
    """A time in UTC to the microsecond, ``-`` for one that was not recorded."""
    if not timestamp_us:
        return "-"
    try:
        when = EPOCH + timedelta(microseconds=timestamp_us)
    except OverflowError:
        return f"{timestamp_us}us"
    return when.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
