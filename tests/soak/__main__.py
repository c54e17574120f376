"""`./dev soak`: a soak on SeaweedFS, whose writers are processes that are killed with SIGKILL."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import uuid
from contextlib import ExitStack
from pathlib import Path

import typer

from s3_server import begin_run, end_run, shared_server
from soak.process_writers import process_writers
from stratalog.cli.parameters import duration_s
from stratalog.cli.soak import tell, watching
from stratalog.soak import History, SoakOptions, SoakReport, soak


async def run(options: SoakOptions, history: Path | None, as_json: bool) -> SoakReport:
    server = shared_server()
    os.environ.update(server.environment)
    url = f"s3://{server.bucket}/soak-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        file = None if history is None else stack.enter_context(history.open("wb"))
        watch = stack.enter_context(watching(options.duration_s, shown=not as_json))
        async with process_writers(url) as writers:
            return await soak(
                url,
                options=options,
                open_writer=writers.open,
                history=History(file),
                on_progress=watch,
            )


def seconds(text: str) -> float:
    try:
        return duration_s(text)
    except typer.BadParameter as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__)
    parser.add_argument("--duration", type=seconds, default=600.0, help="for example 30s, 10m, 2h")
    parser.add_argument("--rate", type=float, default=200.0, help="records per second")
    parser.add_argument("--writers", type=int, default=3, help="how many processes write")
    parser.add_argument("--history", type=Path, help="write every operation to this file")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    given = parser.parse_args()
    options = SoakOptions(rate=given.rate, duration_s=given.duration, writers=given.writers)
    owns_server = begin_run()
    try:
        return tell(asyncio.run(run(options, given.history, given.json)), as_json=given.json)
    except KeyboardInterrupt:
        return 130
    finally:
        if owns_server:
            end_run()


if __name__ == "__main__":
    sys.exit(main())
