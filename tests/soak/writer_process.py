"""A process that appends what it is told to, until its input ends or it is killed.

    python writer_process.py URL NAME OPTIONS

    standard input     {"id": 7, "sizes": [40, 41]} and a newline, then the bodies; again and again
    standard output    {"id": 0} once the log is open, then a line for each answer:
                       {"id": 7, "offset": 12, "timestamp_us": ...} or {"id": 7, "error": kind}

Appends that arrive together are under way together.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import stratalog as sl


def answer(**fields: object) -> None:
    os.write(1, json.dumps(fields).encode() + b"\n")


async def append(log: sl.LogWriter, number: int, bodies: list[bytes]) -> None:
    try:
        if len(bodies) == 1:
            position = await log.append(bodies[0])
        else:
            position = (await log.append_many(bodies)).first
    except sl.StratalogError as error:
        answer(id=number, error=error.kind, message=str(error))
    else:
        answer(id=number, offset=position.offset, timestamp_us=position.timestamp_us)


async def serve(url: str, name: str, options: str) -> None:
    stream = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), sys.stdin
    )
    try:
        log = await sl.LogWriter.open(
            url, writer=name, options=sl.WriterOptions(**json.loads(options))
        )
    except sl.StratalogError as error:
        answer(id=0, error=error.kind, message=str(error))
        return
    answer(id=0)
    under_way: set[asyncio.Task[None]] = set()
    while line := await stream.readline():
        command = json.loads(line)
        bodies = [await stream.readexactly(size) for size in command["sizes"]]
        task = asyncio.ensure_future(append(log, command["id"], bodies))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    await log.close()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
