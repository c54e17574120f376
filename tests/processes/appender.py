"""A process that appends to a log until it is told to stop, or is killed.

    python appender.py NAME URL NOTES ON_FENCED

It writes down what it was told about each append, on a line of its own, synced before it goes on:

    {"bodies": [...], "offset": 7, "timestamp_us": 1700000000000000}     acknowledged
    {"bodies": [...], "failed": "fenced"}                                it did not happen
    {"bodies": [...], "unknown": true}                                   it may have happened

A body is ``NAME/number/index``. Several appenders run at once; each keeps the order of its own
numbers. It stops when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from random import Random

import stratalog as sl
from stratalog.errors import NotHappened, Unknown

APPENDERS = 3


class Notes:
    """One line for each answer, on disk before anything else happens."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, **note: object) -> None:
        os.write(self._file, json.dumps(note).encode() + b"\n")
        os.fsync(self._file)


async def append_for_ever(
    log: sl.LogWriter, name: str, notes: Notes, stopping: asyncio.Event
) -> None:
    random = Random(name)
    number = 0
    while not stopping.is_set():
        count = random.choice((1, 1, 1, 4))
        bodies = [f"{name}/{number}/{index}" for index in range(count)]
        number += 1
        try:
            if count == 1:
                position = await log.append(bodies[0].encode())
            else:
                position = (await log.append_many([body.encode() for body in bodies])).first
        except Unknown:
            notes.write(bodies=bodies, unknown=True)
            raise
        except NotHappened as error:
            notes.write(bodies=bodies, failed=error.kind)
            raise
        notes.write(bodies=bodies, offset=position.offset, timestamp_us=position.timestamp_us)


async def main(name: str, url: str, notes_path: str, on_fenced: str) -> int:
    notes, stopping = Notes(notes_path), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), stopping.set)
    options = sl.WriterOptions(
        on_fenced="reopen" if on_fenced == "reopen" else "raise",
        rollup_entries=3,
        snapshot_entries_max=8,
        fragment_bytes=500,
    )
    log = await sl.LogWriter.open(url, create=True, writer=name, options=options)
    tasks = [
        asyncio.ensure_future(append_for_ever(log, f"{name}.{i}", notes, stopping))
        for i in range(APPENDERS)
    ]
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    loop.remove_reader(sys.stdin.fileno())
    await log.close()
    defects = [each for each in outcomes if each and not isinstance(each, sl.StratalogError)]
    if defects:
        raise defects[0]
    return 3 if any(outcomes) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
