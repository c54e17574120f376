"""The input of `append`: a file or standard input, read in chunks by a thread of its own.

Reading standard input may block for ever, and the event loop must not. The thread is a daemon and
reads the bare descriptor, so that neither Ctrl-C nor a failed append has to wait for the next
line. It is at most a few chunks ahead of the log.
"""

import asyncio
import io
import os
import stat
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from stratalog.cli.values import unreadable
from stratalog.errors import Invalid

CHUNK_BYTES = 256 * 1024
CHUNKS_AHEAD_MAX = 4
UNREADABLE = "Give a file that can be read, or - for standard input."


@dataclass(frozen=True, slots=True)
class Source:
    """An open input. ``size`` is known for a file, and then progress can be a bar."""

    name: str
    stream: io.FileIO | BinaryIO
    size: int | None
    interactive: bool


@contextmanager
def open_source(file: Path | None) -> Iterator[Source]:
    """A file, or standard input for none and for ``-``."""
    if file is None or str(file) == "-":
        yield _standard_input()
        return
    try:
        stream = io.FileIO(file)
    except OSError as error:
        raise unreadable(str(file), error, UNREADABLE) from None
    with stream:
        yield Source(str(file), stream, _file_size(stream), False)


async def chunks(source: Source) -> AsyncGenerator[bytes, None]:
    """The input as it comes, until its end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_AHEAD_MAX)

    def pump() -> None:
        while True:
            room.acquire()
            got: bytes | OSError
            try:
                got = source.stream.read(CHUNK_BYTES) or b""
            except OSError as error:
                got = error
            except ValueError:  # closed by the consumer
                return
            try:
                loop.call_soon_threadsafe(ready.put_nowait, got)
            except RuntimeError:  # the loop has ended
                return
            if not isinstance(got, bytes) or not got:
                return

    threading.Thread(target=pump, name="stratalog-input", daemon=True).start()
    while True:
        got = await ready.get()
        if isinstance(got, OSError):
            raise unreadable(source.name, got, UNREADABLE)
        if not got:
            return
        room.release()
        yield got


def _standard_input() -> Source:
    name = "standard input"
    if sys.stdin is None:
        raise Invalid("there is no standard input", hint="Name a file.")
    try:
        stream = io.FileIO(sys.stdin.fileno(), closefd=False)
    except OSError:
        return Source(name, sys.stdin.buffer, None, False)
    return Source(name, stream, _file_size(stream), stream.isatty())


def _file_size(stream: io.FileIO) -> int | None:
    status = os.fstat(stream.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None
