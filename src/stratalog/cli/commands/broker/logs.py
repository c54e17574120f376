"""How a server logs: lines for people, or one JSON object for each record."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import msgspec

from stratalog.store import redact

OF_ERRORS = ("kind", "hint", "exit_code")


def moment(created_s: float) -> str:
    """A time in UTC to the millisecond."""
    when = datetime.fromtimestamp(created_s, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO stratalog.broker: message`"""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{moment(record.created)} {record.levelname} {record.name}: {record.getMessage()}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return redact(line)


class JsonFormatter(logging.Formatter):
    """`{"time":…,"level":…,"logger":…,"message":…}`, and the trace of an exception.

    A line that ends the process also has the error's kind, its hint and the exit code.
    """

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, object] = {
            "time": moment(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        document |= {name: record.__dict__[name] for name in OF_ERRORS if name in record.__dict__}
        if record.exc_info:
            document["exception"] = redact(self.formatException(record.exc_info))
        return msgspec.json.encode(document).decode()


@contextmanager
def logging_to_stderr(log_format: str, level: str) -> Iterator[None]:
    """Log what the library says, from this level on, until the end of the block."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    loggers = (logging.getLogger("stratalog"), logging.getLogger("asyncio"))
    levels = [each.level for each in loggers]
    for each in loggers:
        each.addHandler(handler)
        each.setLevel(level.upper())
    try:
        yield
    finally:
        for each, before in zip(loggers, levels, strict=True):
            each.removeHandler(handler)
            each.setLevel(before)
