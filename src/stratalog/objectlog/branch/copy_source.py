"""The log that is copied from: what a stretch of it adds up to, holding it, reading it.

A log of ours is pinned while it is copied, from the first record that is not copied yet. The pin
has an expiry, in case the copy dies, and is renewed as long as the copy goes on. A log that cannot
be pinned, because wal3 made it or because it may only be read, is read as it is. If it is cut above
what is still to be copied, the copy fails with ``Trimmed``.
"""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from stratalog.errors import Conflict, Denied, Invalid, NotFound, Trimmed
from stratalog.hashing import digest_of
from stratalog.objectlog.branch.divide import encode_part
from stratalog.objectlog.holds import Pin, PinStore, load_pinned
from stratalog.objectlog.options import KIB, MIB, CopyOptions
from stratalog.objectlog.stored import (
    CopyNote,
    EncodedFragment,
    Entry,
    Fragment,
    LogPosition,
    Manifest,
    check_bytes,
    decode_fragment,
    load_manifest,
)
from stratalog.objectlog.tree import Reloads, Tree, Window
from stratalog.runtime import Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import PatientStore, StoreLike, open_store

SNAPSHOT_CACHE_BYTES = 1 * MIB
VERIFY_INLINE_BYTES_MAX = 32 * KIB


class CopySource:
    """One log, for one run of a copy."""

    def __init__(self, url: StoreLike, owner: str, options: CopyOptions, runtime: Runtime) -> None:
        self._store = PatientStore(open_store(url), runtime, options.timeout_s)
        self._tree = Tree(self._store, SNAPSHOT_CACHE_BYTES)
        self._pins = PinStore(self._store, owner=owner, runtime=runtime)
        self._options = options
        self._runtime = runtime
        self._pin: Pin | None = None
        self._reloads = Reloads(self._store)
        self.url = self._store.url

    async def plan(
        self, from_offset: int | None, to_offset: int | None
    ) -> tuple[CopyNote, LogPosition]:
        """What is to be copied, the sum that it has, and the position where it begins."""
        while True:
            manifest, etag = await load_manifest(self._store)
            first, tail = manifest.first_offset, manifest.tail.offset
            start = first if from_offset is None else from_offset
            limit = tail if to_offset is None else to_offset
            _check_has(manifest, start)
            if not start <= limit <= tail:
                reason = f"there is nothing from {start} to {limit}: the log ends at {tail}"
                hint = "Give offsets inside the log; `stratalog info` shows them."
                raise Invalid(reason, hint=hint, actual=tail)
            try:
                setsum = await self._sum_of(manifest.entries, start, limit)
                begins_us = await self._time_at(manifest, start)
            except NotFound as error:
                await self.look_again(error, etag, start)
                continue
            note = CopyNote(
                source=self.url,
                start=start,
                limit=limit,
                setsum=setsum,
                id=self._runtime.new_id(),
                state="copying",
            )
            return note, LogPosition(start, begins_us)

    async def _sum_of(self, entries: Sequence[Entry], start: int, limit: int) -> Setsum:
        """The sum of a stretch. Only what a boundary divides is read."""
        total = EMPTY
        for entry in entries:
            if start <= entry.start.offset and entry.limit.offset <= limit:
                total += entry.setsum
            elif entry.limit.offset <= start or limit <= entry.start.offset or start == limit:
                continue
            elif isinstance(entry, Fragment):
                encoded, _ = await self.read(entry, start, limit)
                total += encoded.setsum
            else:
                node = await self._tree.snapshot(entry)
                total += await self._sum_of(node.entries, start, limit)
        return total

    async def _time_at(self, manifest: Manifest, offset: int) -> int:
        """The time that the first record of a copy may not go below."""
        window = Window(offset, offset + 1)
        async with aclosing(self._tree.walk(manifest, window)) as fragments:
            async for fragment in fragments:
                return fragment.start.timestamp_us
        return manifest.tail.timestamp_us

    # Reading

    async def hold(self, note: CopyNote, next_offset: int) -> tuple[Manifest, str]:
        """Pin what is left to copy, if that can be done; gives what is to be read, and its etag.

        It has all from ``next_offset`` on, otherwise that is ``Trimmed``.
        """
        manifest, etag = await load_manifest(self._store)
        self._pin = await self._held(note, next_offset) if manifest.is_ours else None
        if self._pin is not None:
            manifest, etag = await load_pinned(self._store, self._pin.name)
        _check_has(manifest, next_offset)
        return manifest, etag

    def walk(self, manifest: Manifest, start: int, limit: int) -> AsyncGenerator[Fragment, None]:
        """The fragments of a stretch, oldest first."""
        return self._tree.walk(manifest, Window(start, limit))

    async def read(
        self, fragment: Fragment, start: int, limit: int
    ) -> tuple[EncodedFragment, Fragment]:
        """A fragment as it is stored, verified; or the part of it that lies in the stretch.

        Gives its entry, too.
        """
        blob = await self._tree.store_of(fragment).get(fragment.path)
        low, high = max(fragment.start.offset, start), min(fragment.limit.offset, limit)

        def verified() -> tuple[EncodedFragment, Fragment]:
            if high - low < fragment.span:
                return encode_part(blob.data, fragment, low, high)
            if not check_bytes(blob.data, fragment):
                decode_fragment(blob.data, fragment)
            return EncodedFragment(blob.data, fragment.setsum, digest_of(blob.data)), fragment

        if fragment.num_bytes <= VERIFY_INLINE_BYTES_MAX:
            return verified()
        return await self._runtime.compute(verified)

    async def look_again(self, error: NotFound, etag: str | None, next_offset: int) -> None:
        """An object is gone: ``Trimmed`` or ``Corrupt``, or what is to be read has changed."""

        def check_start(manifest: Manifest) -> bool:
            _check_has(manifest, next_offset)
            return False

        await self._reloads.after(error, etag, check_start)
        if self._pin is not None:
            # Its owner died before it counted.
            await self._pin.release()

    async def was_compacted(self) -> bool:
        """Whether records may have gone from the middle of it."""
        return (await load_manifest(self._store))[0].compacted is not None

    # Holding

    async def _held(self, note: CopyNote, next_offset: int) -> Pin | None:
        """The pin of this copy, or one that an earlier run has left. None if there may be none."""
        try:
            for pin in await self._own_pins(note):
                if pin.from_offset > next_offset:
                    # This pin belongs to a run that has copied more than this one has seen.
                    continue
                with contextlib.suppress(Conflict, Trimmed):
                    return await pin.renew(self._expiry_us())
            return await self._pins.create(
                note.pin_prefix + self._runtime.new_id(),
                next_offset,
                note.limit,
                note=f"held by a copy of {note.start} to {note.limit}",
                expires_us=self._expiry_us(),
            )
        except Denied:
            return None

    async def keep(self) -> bool:
        """Renew the pin once half of its time is over. False if it is not ours any more."""
        pin = self._pin
        if pin is None or pin.expires_us is None:
            return True
        left_us = pin.expires_us - self._runtime.now_us()
        if 2 * left_us < self._options.pin_expiry_s * 1_000_000:
            try:
                self._pin = await pin.renew(self._expiry_us())
            except (Conflict, Trimmed):
                return False
        return True

    async def release(self, note: CopyNote) -> None:
        """Release the pins of a copy that is done, also those that earlier runs have left."""
        with contextlib.suppress(Denied):
            for pin in await self._own_pins(note):
                await pin.release()

    async def _own_pins(self, note: CopyNote) -> list[Pin]:
        return [pin for pin in await self._pins.list() if pin.name.startswith(note.pin_prefix)]

    def _expiry_us(self) -> int:
        return self._runtime.now_us() + int(self._options.pin_expiry_s * 1_000_000)


def _check_has(manifest: Manifest, offset: int) -> None:
    first = manifest.first_offset
    if offset < first:
        raise Trimmed(f"the source starts at {first}", first_offset=first) from None
