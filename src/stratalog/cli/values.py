"""What the values of options are: times, durations, sizes, and files."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import typer

from stratalog.cli.output import EPOCH
from stratalog.errors import Denied, Invalid, NotFound, StratalogError

T = TypeVar("T")

UNITS_OF_BYTES = "KMGTP"
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
_SIZE = re.compile(r"(\d{1,18})(?:\.(\d{1,6}))? ?(?:([KMGTP]i?)?B)?", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


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


def decoded(file: Path, decode: Callable[[bytes], T]) -> T:
    """What a file holds. If it is something else, the error names the file."""
    try:
        return decode(file.read_bytes())
    except Invalid as error:
        raise Invalid(f"{file}: {error}", hint=error.hint) from None


def unreadable(name: str, error: OSError, hint: str) -> StratalogError:
    """Why an input cannot be read. The hint is for what no other error says better."""
    message = f"cannot read {name}: {error.strerror or error}"
    if isinstance(error, FileNotFoundError):
        return NotFound(message, hint="Check the name of the file.", path=name)
    if isinstance(error, PermissionError):
        return Denied(message, hint="Check the permissions of the file.", path=name)
    return Invalid(message, hint=hint, path=name)
