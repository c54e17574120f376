"""The history of a run as JSON lines, for an independent checker of linearizability.

One line for each operation, once it has returned. ``docs/guide/proof.md`` says how a checker can
use it. Persisted: keep stable.

    process      caller: a writer number for appends; ``follow``, ``read-3``, ``pin-1``, ``fork-2``
    kind         ``append``, ``read`` (records), ``tail`` (where the log ends)
    call_ns      from one monotonic clock for all lines; no two events share an instant
    return_ns    null if it never returned
    outcome      ``ok``, ``failed`` (it did not happen), ``unknown`` (it may have happened)
    offset       of the first record, or the tail; null if there is none
    count        the number of records
    digest       BLAKE2b-128 of the bodies, each after its length (u32 BE)
    records      the bodies' own description: ``[writer, first number, count]``, in order
"""

import asyncio
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import BinaryIO, Literal

import msgspec

from stratalog.objectlog.check import Stretch

Kind = Literal["append", "read", "tail"]


@dataclass(slots=True, eq=False)
class Operation:
    process: str
    kind: Kind
    call_ns: int
    return_ns: int | None = None
    outcome: str = "unknown"
    offset: int | None = None
    count: int = 0
    digest: str = ""
    records: Sequence[tuple[int, int, int]] = ()


class History:
    """Writes the lines to a file, or nowhere."""

    def __init__(self, file: BinaryIO | None = None) -> None:
        self._file = file
        self._last_ns = 0
        self._under_way: set[Operation] = set()

    def call(
        self,
        process: str,
        kind: Kind,
        bodies: Sequence[bytes] = (),
        records: Sequence[tuple[int, int, int]] = (),
    ) -> Operation:
        """Record that an operation begins."""
        digest = digest_of(bodies) if self._file is not None and bodies else ""
        made = Operation(
            process, kind, self._now_ns(), count=len(bodies), digest=digest, records=records
        )
        if self._file is not None:
            self._under_way.add(made)
        return made

    def ok(self, operation: Operation, offset: int | None) -> None:
        """It returned: ``offset`` is that of the appended record, or the tail."""
        self._write(operation, "ok", offset)

    def read(self, operation: Operation, offset: int, bodies: Sequence[bytes | memoryview]) -> None:
        """A read returned these bodies."""
        if self._file is not None:
            operation.digest, operation.count = digest_of(bodies), len(bodies)
        self._write(operation, "ok", offset)

    def failed(self, operation: Operation) -> None:
        """It did not happen."""
        self._write(operation, "failed")

    def unknown(self, operation: Operation) -> None:
        """It may have happened, or may still happen: it never returns."""
        self._write(operation, "unknown")

    def drop(self, operation: Operation) -> None:
        """Forget it: it sent no request."""
        self._under_way.discard(operation)

    def close(self) -> None:
        """Write every open operation as unknown."""
        for operation in sorted(self._under_way, key=lambda each: each.call_ns):
            self.unknown(operation)
        if self._file is not None:
            self._file.flush()

    def _write(self, operation: Operation, outcome: str, offset: int | None = None) -> None:
        if self._file is None:
            return
        self._under_way.discard(operation)
        operation.outcome, operation.offset = outcome, offset
        operation.return_ns = None if outcome == "unknown" else self._now_ns()
        self._file.write(msgspec.json.encode(operation) + b"\n")

    def _now_ns(self) -> int:
        now_ns = int(asyncio.get_running_loop().time() * 1e9)
        self._last_ns = max(now_ns, self._last_ns + 1)
        return self._last_ns


def digest_of(bodies: Iterable[bytes | memoryview]) -> str:
    """Equal only for equal bodies in the same order."""
    digest = blake2b(digest_size=16)
    for body in bodies:
        digest.update(struct.pack(">I", len(body)))
        digest.update(body)
    return digest.hexdigest()


def described(stretches: Iterable[Stretch]) -> list[tuple[int, int, int]]:
    """The records that were read, in the form of the field ``records``."""
    return [(stretch.writer, stretch.first, stretch.count) for stretch in stretches]
