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
clock: a collector that finds it past *releases* it by CAS, and its owner renews it by CAS, so one
of the two wins.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import msgspec

from stratalog.errors import Conflict, Exists, Invalid, Trimmed, Unavailable, Unknown
from stratalog.objectlog.holds.cursor import READS_AT_ONCE, legal_name
from stratalog.objectlog.holds.stored_pin import (
    PIN_PREFIX,
    PIN_SUFFIX,
    StoredPin,
    decode_pin,
    let_go_of_pin,
    no_pin,
    pin_path,
    read_pin,
)
from stratalog.objectlog.stored import (
    FIRST_OFFSET,
    FORMAT,
    MANIFEST_PATH,
    Entry,
    LogPosition,
    Manifest,
    check_note,
    check_offset,
    is_being_destroyed,
    load_manifest,
    writer_label,
)
from stratalog.objectlog.tree import Window
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import (
    Blob,
    Landed,
    Patience,
    PatientStore,
    StoreLike,
    create,
    open_store,
    swap,
)

PIN_TIMEOUT_S = 60.0
LATEST_US = 2**63 - 1


class Pin:
    """One version of a pin: what it says, and the witness needed to change it."""

    def __init__(self, pins: PinStore, name: str, stored: StoredPin, etag: str) -> None:
        self._pins = pins
        self._stored = stored
        self._etag = etag
        self._name = name

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
        """When a collection may release it, or None if only its owner may."""
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
        """Let go. What only this pin held goes with the next collection. Again without harm."""
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
        path = pin_path(name)
        check_offset(from_offset)
        _check(note, expires_us, to_offset)
        manifest, _ = await load_manifest(self._store)
        manifest.check_writable()
        stored = self._holding(manifest, from_offset, to_offset, note, expires_us)
        return await self._confirm(await self._claim(name, path, stored, reuse))

    async def use_up(self, name: str) -> None:
        """See to it that a pin of this name holds nothing, and never will: see ``reuse``."""
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
            write_id=self._runtime.new_id(),
            released=True,
        )
        path, patience = pin_path(name), Patience(self._runtime, PIN_TIMEOUT_S)
        try:
            await create(self._store, path, tombstone.to_json(), patience)
        except Exists:
            stored, etag = await read_pin(self._store, path)
            await self._release(Pin(self, name, stored, etag))

    async def _confirm(self, pin: Pin) -> Pin:
        """The pin, once the manifest, read after it was written, has what it points to.

        Only by whoever has written it: to one who fails here it is of no use, and is released.
        """
        patience = Patience(self._runtime, PIN_TIMEOUT_S)
        path = pin_path(pin.name)
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
            pin = Pin(self, pin.name, stored, await self._swap(path, stored, pin._etag, pin.name))
            if not await patience.pause():
                await self._release(pin)
                raise Unavailable("the log changes too fast to be pinned", path=path)

    async def load(self, name: str) -> Pin:
        """The pin as it is now. ``NotFound`` if there is none, or it was released."""
        path = pin_path(name)
        stored, etag = await read_pin(self._store, path)
        if stored.released:
            raise no_pin(name, path)
        return Pin(self, name, stored, etag)

    async def list(self) -> Pins:
        """All pins that hold something, by name."""
        return [pin for pin in await self.list_all() if not pin._stored.released]

    async def list_all(self) -> Pins:
        """Also those that are released and not cleared yet."""
        names = [
            name
            async for row in self._store.list(PIN_PREFIX)
            if legal_name(name := row.path.removeprefix(PIN_PREFIX).removesuffix(PIN_SUFFIX))
            and row.path == pin_path(name)
        ]
        found: Pins = []
        for start in range(0, len(names), READS_AT_ONCE):
            some = names[start : start + READS_AT_ONCE]
            read = await asyncio.gather(*(read_pin(self._store, pin_path(name)) for name in some))
            found += [
                Pin(self, name, stored, etag)
                for name, (stored, etag) in zip(some, read, strict=True)
                if not stored.is_cleared
            ]
        return found

    async def sort_out(self) -> tuple[Pins, Pins]:
        """The pins that hold something, and those that do not and wait to be cleared.

        One whose expiry is past is released on the way, unless its owner is faster.
        """
        held: Pins = []
        let_go: Pins = []
        now_us = self._runtime.now_us()
        for pin in await self.list_all():
            released = pin if pin._stored.released else None
            if released is None and pin._stored.is_past(now_us):
                with contextlib.suppress(Conflict):
                    released = await self._replaced(pin, released=True)
            if released is None:
                held.append(pin)
            else:
                let_go.append(released)
        return held, let_go

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
        tail, first = manifest.tail, manifest.first_offset
        limit = tail.offset if to_offset is None else min(to_offset, tail.offset)
        if from_offset < first:
            raise Trimmed(f"the log starts at {first}", first_offset=first)
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
            write_id=self._runtime.new_id(),
        )

    async def _claim(self, name: str, path: str, stored: StoredPin, reuse: bool) -> Pin:
        """Write the first version, over a tombstone if there is one that is cleared."""
        try:
            patience = Patience(self._runtime, PIN_TIMEOUT_S)
            etag = await create(self._store, path, stored.to_json(), patience)
            return Pin(self, name, stored, etag)
        except Exists:
            before, witness = await read_pin(self._store, path)
        if not before.released or not reuse:
            raise Exists(f"there is already a pin {name!r}", path=path)
        if not before.is_cleared:
            raise Exists(
                f"the last pin {name!r} was released but not collected yet",
                path=path,
                hint="Choose another name, or collect first.",
            )
        # What lies there may have been this very version, created after all and then collected.
        stored = msgspec.structs.replace(stored, write_id=self._runtime.new_id())
        return Pin(self, name, stored, await self._swap(path, stored, witness, name))

    async def _renew(self, pin: Pin, expires_us: int | None) -> Pin:
        _check("", expires_us, None)
        try:
            return await self._replaced(pin, expires_us=expires_us)
        except Conflict:
            stored, _ = await read_pin(self._store, pin_path(pin.name))
            if not stored.released:
                raise
            manifest, _ = await load_manifest(self._store)
            raise let_go_of_pin(pin.name, manifest) from None

    async def _release(self, pin: Pin) -> None:
        while True:
            if pin._stored.released:
                return
            try:
                await self._replaced(pin, released=True)
                return
            except Conflict:
                stored, etag = await read_pin(self._store, pin_path(pin.name))
                pin = Pin(self, pin.name, stored, etag)

    async def _replaced(self, pin: Pin, **changes: object) -> Pin:
        write_id = self._runtime.new_id()
        stored = msgspec.structs.replace(pin._stored, write_id=write_id, **changes)
        etag = await self._swap(pin_path(pin.name), stored, pin._etag, pin.name)
        return Pin(self, pin.name, stored, etag)

    async def _swap(self, path: str, stored: StoredPin, witness: str, name: str) -> str:
        def is_ours(blob: Blob) -> bool:
            return decode_pin(blob.data, path).write_id == stored.write_id

        patience = Patience(self._runtime, PIN_TIMEOUT_S)
        settled = await swap(self._store, path, stored.to_json(), witness, is_ours, patience)
        if isinstance(settled, Landed):
            return settled.etag
        if not settled.answered:
            raise Unknown(f"the pin {name!r} was changed by others meanwhile", path=path)
        raise Conflict(
            f"the pin {name!r} was changed since it was loaded",
            path=path,
            hint="Load it again, then decide.",
        )


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
