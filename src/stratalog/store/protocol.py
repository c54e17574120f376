"""The narrow contract between the log and whatever keeps its objects.

A store maps paths to immutable byte strings with an etag. Everything above relies on seven
operations and on nothing else:

    get, get_range, head      read one object
    put_if_absent             create it, or learn that the name is taken
    put_if_match              replace exactly the version that was read
    list                      paths under a prefix, in byte order
    delete_many               remove objects; a missing one is no error

What a conditional put may answer:

    an etag                   the write landed, durably
    Exists / Conflict         the store refused. This may be the echo of the caller's own earlier
                              attempt, so the caller reads back before it believes it
    Unknown                   the answer was lost. The write landed, or will land, or never will
    Denied, Invalid           the write did not land
    Unavailable               the write did not land: a disk is full, a lock was never free

Reads answer ``NotFound``, ``Denied`` or ``Unavailable``. An implementation never repeats a
conditional put by itself. Etags may be hashes of the content: equal bytes may have equal etags.

Every operation ends. A store bounds its own calls in time, and answers ``Unavailable`` or
``Unknown`` when the time is up: the log above counts its patience between calls and does not
interrupt one, because a put that was abandoned may still land. Buckets have a time-out for each
request; the directory has one for its lock, and relies on the kernel for the disk.

Paths are relative, with ``/`` between parts; a part is neither empty nor ``.`` or ``..`` and
does not start with a dot.
"""

import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from stratalog.errors import Invalid

PATH_BYTES_MAX = 1024

_UNENCODABLE = re.compile("[\0\ud800-\udfff]")


class Blob:
    """An object's bytes and the etag of that version."""

    __slots__ = ("_etag", "data")

    def __init__(self, data: bytes, etag: str | None = None) -> None:
        self.data = data
        self._etag = etag

    @property
    def etag(self) -> str:
        """Computed from the content when the store keeps none, and only when asked for."""
        if self._etag is None:
            self._etag = content_etag(self.data)
        return self._etag


@dataclass(frozen=True, slots=True)
class Head:
    """What a store tells about an object without its bytes."""

    path: str
    size: int
    etag: str
    version: str | None = None
    """Which of several kept versions this is, if the store tells."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One row of a listing."""

    path: str
    size: int


@runtime_checkable
class Store(Protocol):
    """See the module's docstring for what each operation promises."""

    @property
    def url(self) -> str:
        """Where the objects are, for people: no secrets in it."""
        ...

    async def get(self, path: str) -> Blob: ...

    async def get_range(self, path: str, start: int, length: int) -> bytes: ...

    async def head(self, path: str) -> Head: ...

    async def put_if_absent(self, path: str, data: bytes) -> str: ...

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str: ...

    def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]: ...

    async def delete_many(self, paths: Sequence[str]) -> None: ...


def content_etag(data: bytes) -> str:
    """The etag of stores that keep none of their own, as S3 does: a hash of the bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def check_path(path: str) -> str:
    """Refuse a path that some store could not keep, before anything is sent."""
    parts = path.split("/")
    if any(not part or part.startswith(".") for part in parts) or _UNENCODABLE.search(path):
        raise Invalid(
            f"not a legal object path: {path!r}",
            path=path,
            hint="No part of it may be empty or begin with a dot, and all of it is plain text.",
        )
    if len(path.encode(errors="surrogatepass")) > PATH_BYTES_MAX:
        raise Invalid(
            f"an object path may have {PATH_BYTES_MAX} bytes: {path!r}",
            path=path,
            hint="Choose a shorter prefix.",
        )
    return path
