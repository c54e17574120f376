"""What people and programs see: results on standard output, everything else on standard error.

Both often end in one place, so what is said on one is there before anything is said on the other.

Text that came from outside (URLs, names, records, messages) is never read as markup. Rich is
loaded when something is drawn, so that a command that only prints stays quick.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from stratalog.store import redact

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PIPE_WIDTH = 160
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Advance = Callable[[int], None]


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


def write(data: bytes) -> None:
    """Result bytes, exactly as they are."""
    sys.stdout.buffer.write(data)


def write_json(document: object) -> None:
    """One JSON document on one line, for programs."""
    write(_as_json(document))


def _as_json(document: object) -> bytes:
    import msgspec

    return msgspec.json.encode(document) + b"\n"


def _results_first() -> None:
    """Let out what was said before. Should it fail, the end of the program tells."""
    with suppress(OSError):
        sys.stdout.flush()


def complain(label: str, colour: str, message: str) -> None:
    """A labelled line on standard error, the label in colour on a terminal."""
    from rich.text import Text

    _results_first()
    line = Text.assemble((f"{label}: ", f"bold {colour}"), (redact(message), colour))
    console(stderr=True).print(line, soft_wrap=True)


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
        yield lambda _: None
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
        yield lambda done: bar.update(task, completed=done)


class LateBar:
    """A bar that appears once it is known how long it will be."""

    def __init__(self, stack: ExitStack, what: str, *, unit: str, shown: bool) -> None:
        self._stack = stack
        self._what = what
        self._unit = unit
        self._shown = shown
        self._advance: Advance | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._advance is None:
            bar = progress(self._what, total, unit=self._unit, shown=self._shown)
            self._advance = self._stack.enter_context(bar)
        self._advance(done)


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
