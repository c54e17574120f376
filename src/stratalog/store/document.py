"""A document: one small object at a fixed path that changes by compare-and-swap.

Cursors, pins, upload guards, policies, certificates, plans, catalogue entries, outputs and the
manifest are documents. ``cas`` settles what became of one conditional put. This module adds what
all of them share: typed versions, write ids, tombstones, and the loop that changes whatever is
stored.

    nothing ──create──► live ──put──► live ──put──► tombstone ──create──► live

A *version* is a value with the etag that is the witness for replacing it. A document ends as a
tombstone, which is one more version: not every store can delete on a condition, and an empty path
would let a late creation land. ``load`` finds no document where a tombstone is, and ``create``
replaces it.

Every version ends with a digest of itself (``closing``), which the decoder checks and takes away.

Every version carries a fresh ``write_id``. A value that has none yet, or still that of the version
it was made from, is given one when it is put. So no two versions are byte-equal, and a version that
is read back tells who wrote it.

The races, and what settles each:

1.  *The answer to a put is lost.* The document is read back. Our write id means that it landed; the
    old etag means that it has not landed yet, so the same bytes are put again.
2.  *A refusal is the echo of our own attempt*, because something on the way sent it twice. No
    refusal is believed before the document was read back, so this is race 1.
3.  *A version returns.* Etags may be hashes of the content. If a later version had the bytes of an
    earlier one, the witness of the earlier one would be good again, and a put that was delayed
    since then would land. A fresh write id makes that impossible.
4.  *Our put landed unseen, and others have built on it.* What is there now does not have our write
    id, and nobody refused us: ``put`` raises ``Unknown``. A value that leaves a trace in later
    versions passes ``is_ours``, which finds the trace.
5.  *Others changed the document first.* The store itself refused our only attempt: ``Conflict``.
6.  *A tombstone that ``create`` finds is that of our own creation*, which landed unseen and was
    deleted by others. What replaces it is another version, with a write id of its own.
"""

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from stratalog.errors import Conflict, Corrupt, Exists, Invalid, NotFound, StratalogError, Unknown
from stratalog.invariants import invariant
from stratalog.ordered import gather_bounded
from stratalog.runtime import Runtime
from stratalog.store.cas import Landed, Patience, Superseded, create, swap
from stratalog.store.closing import close_json
from stratalog.store.protocol import Blob, Store

READS_AT_ONCE = 32
RELOAD = "Load it again, then decide."


class Versioned(Protocol):
    """What a document holds: a msgspec struct with a ``write_id``."""

    @property
    def write_id(self) -> str | None: ...

    def to_json(self) -> bytes: ...


V = TypeVar("V", bound=Versioned)

Decode = Callable[[bytes, str], V]
"""The value in stored bytes, given their path. ``Corrupt`` if they hold none, or if they are not
what was put: it begins with ``open_json``."""

Encode = Callable[[V], bytes]
"""The bytes to put for a value."""


@dataclass(frozen=True, slots=True)
class Version(Generic[V]):
    """A value as it was stored, and the witness for replacing it."""

    value: V
    etag: str


def closed(value: Versioned) -> bytes:
    """The bytes to put for a version. They end with their digest."""
    invariant(bool(value.write_id), "a version that is put has a write id")
    return close_json(value.to_json(), value.write_id or "")


def _never(_value: object) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Document(Generic[V]):
    """One document. ``label`` names it in messages: "cursor 'a'"."""

    store: Store
    path: str
    decode: Decode[V]
    _: KW_ONLY
    label: str
    runtime: Runtime
    timeout_s: float
    is_tombstone: Callable[[V], bool] = _never
    encode: Encode[V] = closed
    hint_if_missing: str | None = None
    hint_if_changed: str | None = RELOAD

    async def read(self) -> Version[V] | None:
        """The newest version, which may be a tombstone. None if there never was one."""
        return await read_version(self.store, self.path, self.decode)

    async def load(self) -> Version[V]:
        """The newest version. ``NotFound`` if there is none, or only a tombstone."""
        found = await self.read()
        if found is None or self.is_tombstone(found.value):
            raise self.missing()
        return found

    async def create(self, make: Callable[[V | None], V]) -> Version[V]:
        """The first version, or the one that replaces a tombstone. ``Exists`` if one is live.

        ``make`` gets the tombstone, if there is one, and may raise to leave it alone.
        """
        first = await self.try_put(None, make(None))
        if isinstance(first, Version):
            return first
        found = await self.read()
        if found is None:
            raise self.missing()
        if not self.is_tombstone(found.value):
            raise self.taken()
        return await self.put(found, make(found.value))

    async def put(
        self, before: Version[V] | None, value: V, *, is_ours: Callable[[V], bool] = _never
    ) -> Version[V]:
        """Put a version in the place of ``before``, where None stands for an empty path.

        Returns the newest version: this one, or one that shows by ``is_ours`` that it came after.
        ``Conflict`` if others changed the document since; ``Unknown`` if they did and it cannot be
        told whether this version was there before theirs.
        """
        settled = await self.try_put(before, value, is_ours=is_ours)
        if isinstance(settled, Version):
            return settled
        if not settled.answered:
            raise Unknown(f"the {self.label} was changed by others meanwhile", path=self.path)
        raise self.changed()

    async def try_put(
        self,
        before: Version[V] | None,
        value: V,
        *,
        is_ours: Callable[[V], bool] = _never,
        patience: Patience | None = None,
    ) -> Version[V] | Superseded[Version[V]]:
        """The same, telling what is there now in place of raising."""
        patience = patience or Patience(self.runtime, self.timeout_s)
        fresh = self._fresh(value, before)
        data = self.encode(fresh)
        if before is None:
            try:
                return Version(fresh, await create(self.store, self.path, data, patience))
            except Exists:
                return Superseded(None, answered=True)

        def wrote(blob: Blob) -> bool:
            found = self.decode(blob.data, self.path)
            return found.write_id == fresh.write_id or is_ours(found)

        settled = await swap(self.store, self.path, data, before.etag, wrote, patience)
        if isinstance(settled, Landed):
            newer = settled.newer
            return Version(fresh, settled.etag) if newer is None else self._version(newer)
        current = None if settled.current is None else self._version(settled.current)
        return Superseded(current, settled.answered)

    async def change(
        self,
        make: Callable[[V], Awaitable[V | None]],
        *,
        before: Version[V] | None = None,
        patience: Patience | None = None,
    ) -> Version[V]:
        """Put what ``make`` makes of the newest version, until it lands or None is left to do.

        A function of what is stored never carries an older version along. It is asked anew after
        each refusal, so it must recognise its own effect. It begins with ``before`` if that was
        read already.
        """
        current = before or await self.load()
        while True:
            value = await make(current.value)
            if value is None:
                return current
            settled = await self.try_put(current, value, patience=patience)
            if isinstance(settled, Version):
                return settled
            if settled.current is None:
                raise self.missing()
            current = settled.current

    def missing(self) -> NotFound:
        return NotFound(f"there is no {self.label}", path=self.path, hint=self.hint_if_missing)

    def taken(self) -> Exists:
        return Exists(f"there is already a {self.label}", path=self.path)

    def changed(self) -> Conflict:
        return Conflict(
            f"the {self.label} was changed since it was loaded",
            path=self.path,
            hint=self.hint_if_changed,
        )

    def _version(self, blob: Blob) -> Version[V]:
        return Version(self.decode(blob.data, self.path), blob.etag)

    def _fresh(self, value: V, before: Version[V] | None) -> V:
        """The value as a version of its own."""
        write_id = before.value.write_id if before is not None else None
        if not value.write_id or value.write_id == write_id:
            value = msgspec.structs.replace(cast(Any, value), write_id=self.runtime.new_id())
        invariant(value.write_id != write_id, "every version of a document has a fresh write id")
        return value


async def read_version(store: Store, path: str, decode: Decode[V]) -> Version[V] | None:
    """The newest version at a path, which may be a tombstone. None if there never was one."""
    try:
        blob = await store.get(path)
    except NotFound:
        return None
    return Version(decode(blob.data, path), blob.etag)


async def read_versions(
    store: Store,
    prefix: str,
    decode: Decode[V],
    name_in: Callable[[str], str | None],
    *,
    on_damage: Callable[[StratalogError], None] | None = None,
) -> list[tuple[str, Version[V]]]:
    """All documents under a prefix with their names, in the order of their paths.

    Tombstones are among them. ``name_in`` tells the name from a path, or None for an object that is
    no such document. A document that cannot be decoded is raised, or reported to ``on_damage`` and
    passed over.
    """

    async def read(path: str) -> tuple[str, Version[V]] | None:
        name = name_in(path)
        if name is None:
            return None
        try:
            version = await read_version(store, path, decode)
        except (Corrupt, Invalid) as error:
            if on_damage is None:
                raise
            on_damage(error)
            return None
        return None if version is None else (name, version)

    paths = [row.path async for row in store.list(prefix)]
    found = await gather_bounded(paths, read, READS_AT_ONCE)
    return [each for each in found if each is not None]
