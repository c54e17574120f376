"""Ending a log, and going on elsewhere.

``Sealer.seal`` is one compare-and-swap of the manifest: what was linked before it counts, what was
not did not happen. ``migrate`` names a successor in the seal and then brings it into being, at the
next offset, with a pointer back:

    seal names (url, id)  ──►  the successor is created with that id, at the tail of the sealed log

The name is given once, so there is one successor whatever crashes or races: a second call for the
same place completes the work of the first one; a call for another place is refused.
"""

from __future__ import annotations

import msgspec

from stratalog.errors import Conflict, Exists, Invalid, NotFound
from stratalog.objectlog.pickling import located
from stratalog.objectlog.stored import (
    MANIFEST_PATH,
    Link,
    LogPosition,
    Manifest,
    Seal,
    as_fields,
    check_note,
    encode_manifest,
    load_any_manifest,
    load_manifest,
    predecessor_of,
    seal_of,
    taken,
    writer_label,
)
from stratalog.objectlog.tree import amend
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import (
    Patience,
    PatientStore,
    Store,
    StoreLike,
    create,
    open_store,
    probe,
    redact,
    sibling,
)

SEAL_TIMEOUT_S = 60.0
TAKEN_HINT = "A successor begins where nothing is."


class Sealer:
    """Seals one log."""

    def __init__(
        self, url: StoreLike, *, writer: str | None = None, runtime: Runtime = DEFAULT_RUNTIME
    ) -> None:
        self._store = PatientStore(open_store(url), runtime, SEAL_TIMEOUT_S)
        self._writer = writer_label(writer)
        self._runtime = runtime

    async def seal(self, note: str = "") -> LogPosition:
        """Let the log take no more records. Gives its end, also if it was sealed before."""
        return (await self._sealed(check_note(note), None)).tail

    async def state(self) -> Seal | None:
        """The seal, or None if the log takes records."""
        manifest, _ = await load_manifest(self._store)
        return seal_of(manifest)

    async def migrate(self, successor: StoreLike, note: str = "") -> LogPosition:
        """Seal the log and go on at ``successor``, where nothing is yet, at the next offset.

        Gives the position where the successor begins. Idempotent. ``Conflict`` if the seal names
        another successor already, ``Exists`` if another log is at that place.
        """
        target = open_store(successor)
        if target.url == self._store.url:
            raise Invalid("a log cannot be its own successor", hint="Choose another place.")
        known = await self.state()
        if known is None or known.successor is None:
            await self._check_free(target)
        link = Link(url=_place(successor, target.url), id=self._runtime.new_id())
        ended = await self._sealed(check_note(note), link)
        seal = seal_of(ended)
        named = None if seal is None else seal.successor
        if named is not None and named.url == link.url:
            await self._begin(target, ended, named)
        elif named is not None and _normal(named.url) == target.url:
            # Perhaps the same place, spelled in another way. What the seal says is where all go.
            await self._begin(sibling(self._store, named.url), ended, named)
            if not await _is_successor(target, named):
                raise _another(named.url)
        else:
            raise _another(None if named is None else named.url)
        return ended.tail

    async def _sealed(self, note: str, successor: Link | None) -> Manifest:
        def change(manifest: Manifest) -> Manifest | None:
            manifest.check_writable()
            before = seal_of(manifest)
            if before is not None and (successor is None or before.successor is not None):
                return None
            new = Seal(sealed_us=self._runtime.now_us(), writer=self._writer, note=note)
            after = msgspec.structs.replace(before or new, successor=successor)
            return msgspec.structs.replace(
                manifest, seal=as_fields(after), write_id=self._runtime.new_id()
            )

        return await amend(self._store, change, Patience(self._runtime, SEAL_TIMEOUT_S))

    async def _check_free(self, store: Store) -> None:
        """Before the log is sealed for good: the place is empty, and keeps its promises."""
        try:
            await load_manifest(store)
        except NotFound:
            await probe(store, self._runtime)
            return
        raise taken(store.url, TAKEN_HINT)

    async def _begin(self, store: Store, ended: Manifest, named: Link) -> None:
        first = msgspec.structs.replace(
            Manifest.of_new_log(self._writer, self._runtime),
            initial_offset=ended.tail,
            initial_seq_no=ended.next_seq_no,
            linked=ended.linked,
            sinks=ended.sinks,
            predecessor=as_fields(Link(url=self._store.url, id=named.id)),
        )
        try:
            patience = Patience(self._runtime, SEAL_TIMEOUT_S)
            await create(store, MANIFEST_PATH, encode_manifest(first), patience)
        except Exists:
            if not await _is_successor(store, named):
                raise taken(store.url, TAKEN_HINT) from None


def _place(given: StoreLike, url: str) -> str:
    """What is written into the seal: the URL that was given, options included, if it is one."""
    place = located(given)
    return place if isinstance(place, str) and "://" in place else url


def _normal(url: str) -> str | None:
    """A URL as its store spells it. None if it cannot be opened here."""
    try:
        return open_store(url).url
    except Invalid:
        return None


async def _is_successor(store: Store, named: Link) -> bool:
    """Whether the log that a seal names is there."""
    try:
        manifest, _ = await load_any_manifest(store)
    except NotFound:
        return False
    back = predecessor_of(manifest)
    return back is not None and back.id == named.id


def _another(url: str | None) -> Conflict:
    return Conflict(
        "the log has another successor",
        path=MANIFEST_PATH,
        actual=None if url is None else redact(url),
        hint="A successor is named once. Go on there.",
    )
