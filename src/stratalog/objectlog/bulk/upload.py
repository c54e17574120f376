"""Uploading records before their position is known: the half of a sink that runs in many tasks.

A task registers an upload guard, uploads fragments with relative offsets under its names, and hands
over a list of ``UploadedFragment``, which travels by pickle. ``bulk_commit`` links the lists of all
tasks at once. What nobody links is left to the sweep.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pyarrow as pa

from stratalog.errors import Invalid
from stratalog.objectlog.holds import UploadGuard
from stratalog.objectlog.stored import MARK_KEY, Compression, LinkedMark, encode_staged, sealed
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.setsum import Setsum
from stratalog.store import Patience, Store, StoreLike, open_store, put_once

QUERY_LENGTH_MAX = 128
UPLOAD_TIMEOUT_S = 60.0


class Batch(msgspec.Struct, frozen=True):
    """A batch of a query. Each query numbers its batches upwards, and repeats one that failed."""

    query: str
    number: int

    def __post_init__(self) -> None:
        check_query(self.query)
        if type(self.number) is not int or not 0 <= self.number < 2**63:
            raise Invalid(
                f"the number of a batch is a whole number from 0 on, not {self.number!r}",
                hint="Spark numbers its micro-batches: pass that number on.",
            )


def check_query(query: str) -> str:
    text: object = query
    if not isinstance(text, str) or not text.isprintable() or not 0 < len(text) <= QUERY_LENGTH_MAX:
        raise Invalid(
            f"the id of a query is printable text of at most {QUERY_LENGTH_MAX} characters",
            hint="A UUID, for example.",
        )
    return query


class UploadedFragment(msgspec.Struct, frozen=True, gc=False):
    """A stored fragment that has no position yet."""

    path: str
    incarnation: str
    count: int
    num_bytes: int
    setsum: Setsum
    sweep_epoch: int
    """In which epoch its upload began. In another one it is linked only if its guard is live."""

    xxh3: str | None = None
    """The digest of its bytes."""


@dataclass(frozen=True, slots=True)
class BulkUpload:
    """Uploads the records of one task, in their order. Made by ``BulkUpload.open``."""

    _store: Store
    guard: UploadGuard
    _compression: Compression
    _runtime: Runtime

    @classmethod
    async def open(
        cls,
        url: StoreLike,
        *,
        query: str | None = None,
        batch: int | None = None,
        job: str | None = None,
        owner: str | None = None,
        note: str = "",
        compression: Compression = "zstd",
        runtime: Runtime = DEFAULT_RUNTIME,
    ) -> BulkUpload:
        """Register an upload guard. ``Sealed`` if the log takes no more records.

        It belongs to a ``batch`` of a ``query``, or to the ``job`` whose own guard has this
        incarnation.
        """
        store = open_store(url)
        guard = await UploadGuard.register(
            store, owner=owner, note=note, query=query, batch=batch, job=job, runtime=runtime
        )
        if guard.manifest.seal is not None:
            await guard.release()
            raise sealed(guard.manifest)
        return cls(store, guard, compression, runtime)

    async def upload(self, bodies: pa.Array) -> UploadedFragment:
        """Store these bodies as one fragment. They are a column of binary without nulls."""
        check_bodies(bodies)
        timestamp_us = self._runtime.now_us()
        names, manifest = self.guard.names, self.guard.manifest
        mark = {MARK_KEY: LinkedMark.of(manifest, names.incarnation).text}
        encoded = await self._runtime.compute(
            lambda: encode_staged(timestamp_us, bodies, self._compression, mark)
        )
        path = await put_once(
            self._store,
            lambda: names.staged(manifest.next_seq_no),
            encoded.data,
            Patience(self._runtime, UPLOAD_TIMEOUT_S),
        )
        return UploadedFragment(
            path=path,
            incarnation=names.incarnation,
            count=len(bodies),
            num_bytes=len(encoded.data),
            setsum=encoded.setsum,
            sweep_epoch=manifest.sweep_epoch,
            xxh3=encoded.xxh3,
        )

    async def abandon(self) -> None:
        """Give up: what was uploaded is left to the sweep."""
        await self.guard.release()


def check_bodies(bodies: pa.Array) -> None:
    """Refuse a column that cannot become a fragment."""
    if not pa.types.is_binary(bodies.type):
        raise Invalid(
            f"bodies are a column of binary, not of {bodies.type}", hint="Cast it to binary."
        )
    if bodies.null_count:
        raise Invalid("a body is missing (null)", hint="An empty body is b'', not null.")
    if not len(bodies):
        raise Invalid("a fragment has at least one record", hint="Upload nothing for no records.")
