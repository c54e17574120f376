"""The arguments and options that commands share, and how a command is run."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from stratalog.cli.output import EPOCH
from stratalog.errors import Invalid, NotFound
from stratalog.store import redact

T = TypeVar("T")

UNITS_OF_BYTES = "KMGTP"
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
_SIZE = re.compile(r"(\d{1,18})(?:\.(\d{1,6}))? ?(?:([KMGTP]i?)?B)?", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)

OWN_PROCESS = "a process of its own"
"""The object of the context if nothing outlives the command but what is stored."""


def lasting(context: typer.Context, url: str) -> str:
    """Refuse a log in memory, which is gone when the command ends."""
    if context.resilient_parsing:
        return url
    if context.obj == OWN_PROCESS and url.lower().startswith("memory://"):
        raise Invalid(
            "a log in memory is gone when the command ends",
            hint="Name a directory or a bucket. memory:// is for tests in Python.",
        )
    return url


Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        callback=lasting,
        help="The log: a directory, or file://, s3://, gs:// or az://. "
        "Credentials come from the environment.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Results and errors as JSON, for programs.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show what the library logs, on standard error.")
]


def in_a_directory(file: Path | None) -> Path | None:
    """Refuse a file to be written whose directory is not there, before any work is done."""
    if file is not None and not file.parent.is_dir():
        raise NotFound(
            f"there is no directory {file.parent}",
            hint="Create it first, or name a file elsewhere.",
            path=str(file),
        )
    return file


def time_us(text: str) -> int:
    """Microseconds since 1970 from themselves or from an ISO time; one without a zone is UTC."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither an ISO time like 2026-01-31T12:00:00Z nor microseconds since 1970"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - EPOCH) // timedelta(microseconds=1)


def duration_s(text: str) -> float:
    """Seconds from a duration such as 90s, 30m, 6h, 7d, 2w or 1h30m."""
    if not _DURATION.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is no duration like 90s, 30m, 6h, 7d, 2w or 1h30m")
    return float(sum(int(count) * UNITS_S[unit] for count, unit in _PART.findall(text)))


def grace_s(text: str) -> float:
    """Seconds from a plain number, or from a duration."""
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text) else duration_s(text)


def size_bytes(text: str) -> int:
    """Bytes from a size such as 5000, 64KiB, 1.5GB or 10GiB."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no size like 5000, 64KiB, 1.5GB or 10GiB")
    whole, part, unit = found.groups()
    factor = 1
    if unit is not None:
        power = 1 + UNITS_OF_BYTES.index(unit[0].upper())
        factor = int((1024 if unit[1:] else 1000) ** power)
    return int(whole) * factor + int(int(part or 0) * factor // 10 ** len(part or ""))


def run(work: Coroutine[Any, Any, T], *, verbose: bool) -> T:
    """Run a command's work to its end. Ctrl-C cancels it, so that it can tidy up."""
    with logged(verbose):
        return asyncio.run(work)


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
