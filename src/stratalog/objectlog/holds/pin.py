"""Pins: named holds on stretches of a log, written first and confirmed afterwards.

A pin holds *objects*, by its own copy of the pointers to them: the log may be cut above them and
they stay readable through it. Of what is below its pointers it holds the fragments that overlap
its stretch, and the nodes on the way there. It does not hold back the cut, as a cursor does. It is
written first and counts once the manifest, read again, still has what it points to:

    pin:        read manifest ──► write ──► read manifest: still there? ──► counts
    collector:  put manifest ──► list pins ──► delete what neither reaches

Either the collector's list shows the pin, or the manifest was put before the pin looked again.
Releasing writes a tombstone that keeps the pointers, so that the next collection can delete what
only this pin held; then the pointers go too. A pin may have an expiry. It is no promise of the
clock: a collector that finds it past *releases* the pin by CAS, and its owner renews it by CAS, so
one of the two wins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial

import msgspec

from stratalog.errors import Conflict, Exists, Invalid, Trimmed, Unavailable
from stratalog.objectlog.holds.hold_names import name_in
from stratalog.objectlog.holds.stored_pin import (
    PIN_PREFIX,
    StoredPin,
    decode_pin,
    pin_path,
    read_pin,
    why_released,
)
from stratalog.objectlog.stored import (
    FIRST_OFFSET,
    FORMAT,
    MANIFEST_PATH,
    Entry,
    LogPosition,
    Manifest,
    check_begun,
    check_note,
    check_offset,
    is_being_destroyed,
    load_manifest,
    writer_label,
)
from stratalog.objectlog.tree import Window
from stratalog.renamed import renamed_function
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import (
    Document,
    Patience,
    PatientStore,
    StoreLike,
    Superseded,
    Version,
    open_store,
    read_versions,
)

PIN_TIMEOUT_S = 60.0
LATEST_US = 2**63 - 1


class Pin:
    """One version of a pin: what it says, and the witness needed to change it."""

    def __init__(self, pins: PinStore, name: str, version: Version[StoredPin]) -> None:
        self._pins = pins
        self._version = version
        self._name = name

    @property
    def _stored(self) -> StoredPin:
        return self._version.value

    @property
    def name(self) -> str:
        return self._name

    @property
    def from_offset(self) -> int:
        return self._stored.start.offset

    @property
    def to_offset(self) -> int:
        """The offset after the last one that is held."""
        return self._stored.limit.offset

    @property
    def owner(self) -> str:
        return self._stored.owner

    @property
    def note(self) -> str:
        return self._stored.note

    @property
    def created_us(self) -> int:
        return self._stored.created_us

    @property
    def expires_us(self) -> int | None:
        """When a collection may release it; None if it stays until it is released by name."""
        return self._stored.expires_us

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The pointers that it holds."""
        return self._stored.entries

    @property
    def window(self) -> Window:
        """The part of what lies below its pointers that it holds."""
        return Window(self.from_offset, self.to_offset)

    @property
    def fragment_bytes(self) -> int:
        """How many bytes of fragments lie below its pointers. It holds no more."""
        return sum(entry.num_bytes for entry in self._stored.entries)

    async def renew(self, expires_us: int | None) -> Pin:
        """The pin with another expiry. ``Trimmed`` if it was released meanwhile."""
        return await self._pins._renew(self, expires_us)

    async def release(self) -> None:
        """Release the hold. Idempotent. The next collection deletes what only this pin held.

        A later pin of the same name is left alone.
        """
        await self._pins._release(self)

    def __repr__(self) -> str:
        return f"Pin({self.name!r}, {self.from_offset} to {self.to_offset})"


Pins = list[Pin]


class PinStore:
    """The pins of one log."""

    def __init__(
        self, url: StoreLike, *, owner: str | None = None, runtime: Runtime = DEFAULT_RUNTIME
    ) -> None:
        self._store = PatientStore(open_store(url), runtime, PIN_TIMEOUT_S)
        self._owner = writer_label(owner)
        self._runtime = runtime

    async def create(
        self,
        name: str,
        from_offset: int = FIRST_OFFSET,
        to_offset: int | None = None,
        *,
        note: str = "",
        expires_us: int | None = None,
        reuse: bool = True,
    ) -> Pin:
        """Hold a stretch of the log. ``Exists`` if there is a pin of this name.

        The fragments that overlap it are held, up to the tail if ``to_offset`` is not given.
        ``Trimmed`` if the stretch is not, or no longer, all there. Without ``reuse`` the name of a
        pin that was released counts as taken for ever.
        """
        document = self._document(name)
        check_offset(from_offset)
        _check(note, expires_us, to_offset)
        manifest, _ = await load_manifest(self._store)
        manifest.check_writable()
        stored = self._holding(manifest, from_offset, to_offset, note, expires_us)

        def make(before: StoredPin | None) -> StoredPin:
            if before is not None and not reuse:
                raise document.taken()
            if before is not None and not before.is_cleared:
                raise Exists(
                    f"the last pin {name!r} was released but not collected yet",
                    path=document.path,
                    hint="Choose another name, or collect first.",
                )
            return stored

        return await self._confirm(Pin(self, name, await document.create(make)))

    async def retire(self, name: str) -> None:
        """Make sure that a pin of this name holds nothing and never will: see ``reuse``."""
        nowhere, now_us = LogPosition(FIRST_OFFSET), self._runtime.now_us()
        tombstone = StoredPin(
            start=nowhere,
            limit=nowhere,
            snapshots=(),
            fragments=(),
            owner=self._owner,
            note="",
            created_us=now_us,
            format=FORMAT,
            released=True,
        )
        document = self._document(name)
        if isinstance(await document.try_put(None, tombstone), Superseded):
            await document.change(_released, before=await read_pin(self._store, name))

    use_up = renamed_function("PinStore.use_up", retire)

    async def _confirm(self, pin: Pin) -> Pin:
        """The pin, once a manifest that was read after it was written has what it points to.

        Only its writer calls this. A pin that cannot be confirmed is released.
        """
        patience = Patience(self._runtime, PIN_TIMEOUT_S)
        document = self._document(pin.name)
        while True:
            manifest, _ = await load_manifest(self._store)
            if is_being_destroyed(manifest):
                await self._release(pin)
                raise Conflict("the log is being destroyed", path=MANIFEST_PATH)
            if _has(manifest, pin.entries):
                return pin
            stretch = (pin.from_offset, pin.to_offset)
            try:
                stored = self._holding(manifest, *stretch, pin.note, pin.expires_us)
            except Trimmed:
                await self._release(pin)
                raise
            stored = msgspec.structs.replace(stored, created_us=pin.created_us)
            pin = Pin(self, pin.name, await document.put(pin._version, stored))
            if not await patience.pause():
                await self._release(pin)
                raise Unavailable("the log changes too fast to be pinned", path=document.path)

    async def load(self, name: str) -> Pin:
        """The pin as it is now. ``NotFound`` if there is none, or it was released."""
        return Pin(self, name, await self._document(name).load())

    async def list(self) -> Pins:
        """All pins that hold something, by name."""
        return [pin for pin in await self.list_all() if not pin._stored.released]

    async def list_all(self) -> Pins:
        """Also those that are released and not cleared yet."""
        found = await read_versions(
            self._store, PIN_PREFIX, decode_pin, partial(name_in, PIN_PREFIX)
        )
        return [Pin(self, *each) for each in found if not each[1].value.is_cleared]

    async def release_expired(self) -> tuple[Pins, Pins]:
        """The pins that hold something, and those that were released and wait to be cleared.

        A pin whose expiry is past is released on the way, unless its owner is faster.
        """
        held: Pins = []
        released: Pins = []
        now_us = self._runtime.now_us()
        for pin in await self.list_all():
            if not pin._stored.released and pin._stored.is_past(now_us):
                with contextlib.suppress(Conflict):
                    pin = await self._replaced(pin, released=True)
            (released if pin._stored.released else held).append(pin)
        return held, released

    sort_out = renamed_function("PinStore.sort_out", release_expired)

    async def clear(self, pin: Pin) -> None:
        """Forget the pointers of a released pin, once nothing is left of what only it held."""
        await self._replaced(pin, snapshots=(), fragments=())

    def _holding(
        self,
        manifest: Manifest,
        from_offset: int,
        to_offset: int | None,
        note: str,
        expires_us: int | None,
    ) -> StoredPin:
        """A pin with the pointers of this manifest."""
        tail = manifest.tail
        limit = tail.offset if to_offset is None else min(to_offset, tail.offset)
        check_begun(manifest, from_offset)
        if limit <= from_offset:
            raise Invalid(
                f"nothing is there from {from_offset} to {limit}",
                hint=f"Give a stretch that holds records; the log ends at {tail.offset}.",
                actual=tail.offset,
            )
        window = Window(from_offset, limit)
        return StoredPin(
            start=LogPosition(from_offset),
            limit=LogPosition(limit),
            snapshots=tuple(filter(window.overlaps, manifest.snapshots)),
            fragments=tuple(filter(window.overlaps, manifest.fragments)),
            owner=self._owner,
            note=note,
            created_us=self._runtime.now_us(),
            expires_us=expires_us,
            format=FORMAT,
        )

    async def _renew(self, pin: Pin, expires_us: int | None) -> Pin:
        _check("", expires_us, None)
        try:
            return await self._replaced(pin, expires_us=expires_us)
        except Conflict:
            if not (await read_pin(self._store, pin.name)).value.released:
                raise
            raise await why_released(self._store, pin.name) from None

    async def _release(self, pin: Pin) -> None:
        async def released(stored: StoredPin) -> StoredPin | None:
            return await _released(stored) if _is_same(stored, pin._stored) else None

        await self._document(pin.name).change(released, before=pin._version)

    async def _replaced(self, pin: Pin, **changes: object) -> Pin:
        stored = msgspec.structs.replace(pin._stored, **changes)
        return Pin(self, pin.name, await self._document(pin.name).put(pin._version, stored))

    def _document(self, name: str) -> Document[StoredPin]:
        return Document(
            self._store,
            pin_path(name),
            decode_pin,
            label=f"pin {name!r}",
            runtime=self._runtime,
            timeout_s=PIN_TIMEOUT_S,
            is_tombstone=lambda stored: stored.released,
        )


async def _released(stored: StoredPin) -> StoredPin | None:
    return None if stored.released else msgspec.structs.replace(stored, released=True)


def _is_same(one: StoredPin, other: StoredPin) -> bool:
    """Whether these are versions of one pin. Its name may have been taken again since."""
    return (one.owner, one.created_us) == (other.owner, other.created_us)


def _has(manifest: Manifest, entries: Sequence[Entry]) -> bool:
    """Whether the root still links all of these."""
    linked = {entry.path for entry in manifest.entries}
    return all(entry.path in linked for entry in entries)


def _check(note: str, expires_us: int | None, to_offset: int | None) -> None:
    check_note(note)
    if to_offset is not None:
        check_offset(to_offset)
    if expires_us is not None and (type(expires_us) is not int or not 0 <= expires_us <= LATEST_US):
        raise Invalid(
            f"an expiry is a time in microseconds since 1970, not {expires_us!r}",
            hint="E.g. time.time_ns() // 1000 + seconds * 1_000_000.",
        )
