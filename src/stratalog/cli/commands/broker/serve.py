"""`serve`: a broker for Kafka clients, on this machine's disk."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import exits
from stratalog.cli.commands.broker.flags import Flags
from stratalog.cli.commands.broker.logs import logging_to_stderr
from stratalog.cli.commands.broker.stop import Stop
from stratalog.errors import Invalid, StratalogError

if TYPE_CHECKING:
    from stratalog.broker import Configuration

SPARE_FILES = 1_024
"""Descriptors beside those of connections: segments, WAL files, and what Python opens."""
GRACE_S = 5.0
"""How much longer than its time a shutdown may take before the process ends all the same."""

_logger = logging.getLogger("stratalog.serve")

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A TOML file with options, by the same names."),
]


def serve(*, config: Config = None, flags: Flags) -> None:
    """Serve Kafka clients from a directory on this machine. No Kafka is needed.

    Prints `ready kafka=HOST:PORT http=HOST:PORT` to standard error when clients
    may come. A record is on the disk before it is acknowledged. SIGTERM and
    Ctrl-C end the broker cleanly with exit code 0; a second one ends it at once,
    and nothing acknowledged is lost either way.

    Every option is also a variable (STRATALOG_LISTEN) and a key of the file
    (listen). The command line wins, then the environment, then the file.
    There is no authentication: beyond loopback, whoever reaches it may do all.

    Examples:
      stratalog serve --data data
      stratalog serve --data data --listen 0.0.0.0:9092 --advertise broker-1:9092
      STRATALOG_DATA=data stratalog serve --config broker.toml --log-format json
    """
    if sys.platform == "win32":
        raise Invalid(
            "the broker does not run on Windows",
            hint="Run it on Linux or macOS, or in WSL. Clients may be anywhere.",
        )
    from stratalog.broker import configure

    configured = configure(flags.given(), os.environ, config)
    with logging_to_stderr(configured.logging.log_format, configured.logging.log_level):
        for warning in configured.warnings:
            _logger.warning("%s", warning)
        _raise_file_limit(configured.options.connections_max)
        try:
            _require_directory(configured.options.data)
            asyncio.run(_serve(configured))
        except StratalogError as error:
            if configured.logging.log_format != "json":
                raise
            code = exits.exit_code(error)
            facts = {"kind": error.kind, "hint": error.hint, "exit_code": code}
            _logger.error("%s", error, extra=facts)
            raise typer.Exit(code) from None


def _require_directory(data: Path) -> None:
    """Name the mistake that the errors of the system do not."""
    if os.path.exists(data) and not os.path.isdir(data):  # False where it may not be asked
        raise Invalid(
            f"{data} is a file, not a directory", hint="Name a directory with --data DIR."
        )
    _logger.info("opening the data directory %s", data.absolute())


async def _serve(configured: Configuration) -> None:
    """Open the broker, say that it is ready, and wait for a signal."""
    from stratalog.broker import Broker

    stop = Stop(configured.options.shutdown_ms / 1000 + GRACE_S)
    async with stop.heeded():
        async with Broker.open(configured.options) as broker:
            gc.freeze()  # what is there now stays: the collector need not look at it again
            http = "none" if broker.http_address is None else str(broker.http_address)
            sys.stderr.write(f"ready kafka={broker.address} http={http}\n")
            sys.stderr.flush()
            await stop.wanted()
            _logger.info("stopping: requests in flight are answered first")
        _logger.info("stopped")


def _raise_file_limit(connections_max: int) -> None:
    """Ask for as many descriptors as connections may need, and say so if there are fewer."""
    import resource

    wanted = connections_max + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        most = soft
    if most < wanted:
        _logger.info(
            "this process may open %d files, fewer than connections_max (%d) can need; "
            "raise the limit with `ulimit -n`",
            most,
            connections_max,
        )
