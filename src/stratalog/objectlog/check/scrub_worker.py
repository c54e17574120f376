"""The other end of a scrub: a process of its own that reads, decodes and hashes fragments.

It is started by ``scrub_pool`` as a plain program, not as a fork (the bucket clients do not survive
one) and not through ``multiprocessing`` (which would run the caller's main module again). It opens
the store by URL, takes batches from its standard input, and ends when that ends, so it does not
outlive the process that started it.

    standard input    a ``Job``, then ``(number, entries)`` for each batch
    standard output   ``(number, Examined)`` for each batch, in the same order

Each message is pickled behind its length. All fragments of a batch are asked for at once; they are
examined in order, on the one thread that a process can hash with.
"""

import asyncio
import contextlib
import gc
import os
import pickle
import struct
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

from stratalog.errors import StratalogError
from stratalog.objectlog.check.scrub_read import (
    Examined,
    examine_read,
    read_object,
    read_size,
    tree_of,
)
from stratalog.objectlog.stored import Fragment
from stratalog.objectlog.tree import Tree
from stratalog.runtime import DEFAULT_RUNTIME, run_blocking
from stratalog.store import PatientStore, open_store

LENGTH = struct.Struct(">Q")

Batch = tuple[int, Sequence[Fragment]]
Reads = list[tuple[Fragment, "asyncio.Task[bytes | int | StratalogError]"]]


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is started for."""

    url: str
    bodies: bool
    timeout_s: float


def frame(message: object) -> bytes:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


def main() -> None:
    """Serve until standard input ends."""
    incoming = sys.stdin.buffer
    # Nothing else may write between the messages.
    outgoing = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # The process that started this one has given its warnings already.
    warnings.simplefilter("ignore")
    job = _receive(incoming)
    if job is None:
        return
    # What was imported stays for good, and what comes is freed by counting references.
    gc.freeze()
    gc.disable()
    asyncio.run(_serve(cast(Job, job), incoming, outgoing))


def _receive(incoming: BinaryIO) -> object | None:
    head = incoming.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    data = incoming.read(length)
    return pickle.loads(data) if len(data) == length else None


async def _serve(job: Job, incoming: BinaryIO, outgoing: BinaryIO) -> None:
    tree = tree_of(PatientStore(open_store(job.url), DEFAULT_RUNTIME, job.timeout_s))
    begun: asyncio.Queue[tuple[int, Reads] | None] = asyncio.Queue()

    async def begin() -> None:
        while True:
            message = await run_blocking(lambda: _receive(incoming))
            if message is None:
                begun.put_nowait(None)
                return
            number, entries = cast(Batch, message)
            begun.put_nowait((number, _begin_reading(tree, job.bodies, entries)))

    receiving = asyncio.ensure_future(begin())
    with contextlib.suppress(BrokenPipeError):  # the process that asked is gone
        while (batch := await begun.get()) is not None:
            number, reads = batch
            outgoing.write(frame((number, await _examine(reads))))
            outgoing.flush()
    await receiving


def _begin_reading(tree: Tree, bodies: bool, entries: Sequence[Fragment]) -> Reads:
    async def read(entry: Fragment) -> bytes | int | StratalogError:
        return await (read_object(tree, entry) if bodies else read_size(tree, entry))

    return [(entry, asyncio.ensure_future(read(entry))) for entry in entries]


async def _examine(reads: Reads) -> Examined:
    examined = Examined()
    reads.reverse()
    for index in range(len(reads)):
        entry, read = reads.pop()
        found = await read
        if isinstance(found, StratalogError):
            examined.unread.append((index, found))
        else:
            examined.num_bytes += found if isinstance(found, int) else len(found)
            examined.damages += examine_read(entry, found)
    return examined
