"""The writer: what a program holds to append to a log.

    async with LogWriter.open(url, create=True) as log:
        position = await log.append(b"one")

An append returns when its record is durable and linked. It can fail in two ways: with ``Unknown``
it may have happened; with any other error it did not. A cancelled caller does not cancel its
append. A writer belongs to the event loop that opened it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import NoReturn, cast

from stratalog.errors import Full, Invalid
from stratalog.meter import Timing
from stratalog.objectlog.append.accumulator import Accumulator
from stratalog.objectlog.append.committer import Committer
from stratalog.objectlog.append.context import BeforeLink, WriterContext
from stratalog.objectlog.append.create import load_or_create
from stratalog.objectlog.append.sender import Sender
from stratalog.objectlog.options import RECORD_OVERHEAD_BYTES, WriterOptions
from stratalog.objectlog.pickling import unsendable
from stratalog.objectlog.stats import summarise
from stratalog.objectlog.stored import LogPosition, Manifest, Span, load_manifest, writer_label
from stratalog.objectlog.tree import Change
from stratalog.opening import Opening
from stratalog.renamed import renamed_parameters
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import CountedStore, PatientStore, StoreLike, Usage, open_store

Body = bytes | bytearray | memoryview

DEFAULT_OPTIONS = WriterOptions()


class LogWriter:
    """Appends records to one log. Made by ``LogWriter.open``."""

    def __init__(self, context: WriterContext, manifest: Manifest, etag: str, usage: Usage) -> None:
        self._loop = asyncio.get_running_loop()
        self._opened_s = self._loop.time()
        self._usage = usage
        self._options = options = context.options
        self._record_bytes_max = options.record_bytes_max
        self._counters = context.counters
        self._accumulator = Accumulator(options.queue_bytes_max, options.queue_records_max)
        self._committer = Committer(context, manifest, etag)
        self._sender = Sender(context, self._committer, self._accumulator)

    @classmethod
    @renamed_parameters(beside="before_link")
    def open(
        cls,
        url: StoreLike,
        *,
        writer: str | None = None,
        create: bool = False,
        before_link: BeforeLink | None = None,
        options: WriterOptions = DEFAULT_OPTIONS,
        runtime: Runtime = DEFAULT_RUNTIME,
    ) -> Opening[LogWriter]:
        """Open a log for appending, with one read. ``NotFound`` if there is none, or ``create`` it.

        ``writer`` is a name for people, stored in the manifest. Any number of writers may be open;
        at most one of them wins each position. ``before_link`` is awaited for each fragment while
        it is stored, and the fragment is linked only if that succeeds.
        """

        async def start() -> LogWriter:
            store = CountedStore(open_store(url))
            label = writer_label(writer)
            patient = PatientStore(store, runtime, options.timeout_s)
            if create:
                manifest, etag = await load_or_create(patient, writer=label, runtime=runtime)
            else:
                manifest, etag = await load_manifest(patient)
            manifest.check_writable()
            context = WriterContext(store, label, options, runtime, before_link=before_link)
            return cls(context, manifest, etag, store.usage)

        return Opening(start)

    def __reduce__(self) -> NoReturn:
        raise unsendable(self, "Send the URL, and open a writer where it is used.")

    async def append(self, body: Body, *, expected_offset: int | None = None) -> LogPosition:
        """Append one record; returns its position once it is durable.

        With ``expected_offset`` it lands exactly there, or fails with ``Conflict`` whose
        ``actual`` is the offset where the log ends.
        """
        record = self._checked(body)
        if self._accumulator.crowded:
            await self._room()
        size = len(record) + RECORD_OVERHEAD_BYTES
        future = self._sender.submit((record,), size, True, True, expected_offset)
        return await future  # type: ignore[return-value]

    async def append_many(
        self, bodies: Iterable[Body], *, expected_offset: int | None = None
    ) -> Span:
        """Append records that stay together: all of them or none, without a gap."""
        many: object = bodies
        if not isinstance(many, Iterable) or isinstance(many, bytes | bytearray | memoryview):
            raise Invalid(
                "append_many takes an iterable of bodies; append takes one",
                hint="Use append, or give a list of bodies.",
            )
        records = [self._checked(body) for body in bodies]
        if not records:
            raise Invalid(
                "an empty batch cannot be appended",
                hint="Leave out the call when there is nothing to append.",
            )
        size = sum(map(len, records)) + RECORD_OVERHEAD_BYTES * len(records)
        if size > self._options.batch_bytes_max:
            raise Invalid(
                f"a batch of {size} bytes is larger than batch_bytes_max",
                hint="Append it in parts, or raise WriterOptions.batch_bytes_max.",
                expected=self._options.batch_bytes_max,
                actual=size,
            )
        if self._accumulator.crowded:
            await self._room()
        future = self._sender.submit(records, size, False, True, expected_offset)
        return cast(Span, await future)

    def submit(self, body: Body, *, expected_offset: int | None = None) -> Awaitable[LogPosition]:
        """Append without waiting: gives a future. Records keep the order of the calls.

        Raises ``Full`` when the queue is full; ``await log.drain()`` waits for room. A failure
        that nobody looks at in the future is raised by the next ``flush`` or by ``close``.
        """
        record = self._checked(body)
        if not self._accumulator.has_room():
            raise self._full()
        size = len(record) + RECORD_OVERHEAD_BYTES
        future = self._sender.submit((record,), size, True, False, expected_offset)
        return cast(Awaitable[LogPosition], future)

    async def drain(self) -> None:
        """Wait until the queue has room for one more record."""
        self._sender.check_loop()
        self._accumulator.check_open()
        await self._accumulator.wait_for_room()
        self._accumulator.check_open()

    async def flush(self) -> None:
        """Wait until everything submitted so far is settled.

        Raises the first failure of a ``submit`` whose future nobody has looked at.
        """
        self._sender.check_loop()
        await self._sender.wait_until_settled()
        self._raise_unseen_failure()

    async def close(self) -> None:
        """Settle what was submitted, then stop. Further appends raise ``Closed``.

        Raises the first failure of a ``submit`` whose future nobody has looked at.
        """
        self._sender.check_loop()
        await self._sender.close()
        await self._committer.close()
        self._raise_unseen_failure()

    async def amend(self, change: Change) -> bool:
        """Let this writer put a change of the past, in turn with its own manifests.

        Collectors and the like use it, because a put of their own would cost this writer a lost
        one. False if the change is not in the manifest afterwards.
        """
        self._sender.check_loop()
        self._accumulator.check_open()
        return await self._committer.amend(change)

    def _raise_unseen_failure(self) -> None:
        failure = self._sender.answers.take_unseen_failure()
        if failure is not None:
            raise failure

    @property
    def manifest(self) -> Manifest:
        """The newest manifest that this writer knows."""
        return self._committer.manifest

    @property
    def tail(self) -> int:
        """The next offset of the log, as far as this writer knows."""
        return self._committer.manifest.tail.offset

    @property
    def incarnation(self) -> str:
        """The random name under which this opening uploads."""
        return self._committer.names.incarnation

    @property
    def stats(self) -> Mapping[str, int | Timing]:
        """Counters and latencies since the writer was opened, and its requests by class."""
        return summarise(self._counters, self._usage, self._loop.time() - self._opened_s)

    def _checked(self, body: Body) -> bytes:
        if type(body) is bytes and len(body) <= self._record_bytes_max:
            return body
        if not isinstance(body, bytes | bytearray | memoryview):
            raise Invalid(
                f"a record's body is bytes, not {type(body).__name__}",
                hint="Encode it first, e.g. text.encode().",
            )
        size = memoryview(body).nbytes
        if size > self._record_bytes_max:
            raise Invalid(
                f"a record of {size} bytes is larger than record_bytes_max",
                hint="Split it, or raise WriterOptions.record_bytes_max.",
                expected=self._record_bytes_max,
                actual=size,
            )
        return bytes(body)

    async def _room(self) -> None:
        self._accumulator.check_open()
        if self._options.when_full == "raise":
            raise self._full()
        await self._accumulator.wait_for_room()

    def _full(self) -> Full:
        return Full(
            f"{self._accumulator.records} records with {self._accumulator.bytes} bytes are waiting",
            expected=self._options.queue_bytes_max,
            actual=self._accumulator.bytes,
        )
