"""The options of commands that ask a broker."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.cli.groups import option


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Which broker is asked, and how long it may take."""

    bootstrap: str = option(
        "The broker to ask.",
        default="127.0.0.1:9092",
        metavar="HOST:PORT",
        envvar="STRATALOG_BOOTSTRAP",
    )
    timeout: float = option(
        "How long an answer may take.", default=30.0, metavar="SECONDS", min=0.1, max=3600
    )
