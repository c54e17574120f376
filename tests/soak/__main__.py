"""`./dev soak`: a soak on SeaweedFS, whose writers are processes that are killed with SIGKILL.

Then the driver of a Spark stream from one log to another is killed as well, over and over.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path
from random import Random

import typer

from pipeline.killing import kill_again_and_again
from s3_server import begin_run, end_run, shared_server
from soak.process_writers import process_writers
from stratalog.cli.commands.check.soak import show, watching
from stratalog.cli.reply import Reply
from stratalog.cli.values import duration_s
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


async def kill_drivers(kills: int) -> None:
    """Every record is in the target once, or this raises."""
    server = shared_server()
    root = f"s3://{server.bucket}/soak-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="stratalog-soak-") as folder:
        survived = await kill_again_and_again(
            f"{root}/source", f"{root}/target", Path(folder), kills=kills, random=Random()
        )
    print(
        f"a Spark stream whose driver was killed {survived.kills} times: {survived.copied:,} "
        f"records are there once, beside {survived.beside:,} of another writer, in "
        f"{survived.batches:,} batches",
        file=sys.stderr,
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
    parser.add_argument(
        "--kills", type=int, default=50, help="how often the driver of a Spark stream is killed"
    )
    given = parser.parse_args()
    options = SoakOptions(rate=given.rate, duration_s=given.duration, writers=given.writers)
    owns_server = begin_run()
    try:
        report = asyncio.run(run(options, given.history, given.json))
        code = show(report, Reply(as_json=given.json))
        if code == 0 and given.kills:
            asyncio.run(kill_drivers(given.kills))
        return code
    except KeyboardInterrupt:
        return 130
    finally:
        if owns_server:
            end_run()


if __name__ == "__main__":
    sys.exit(main())
