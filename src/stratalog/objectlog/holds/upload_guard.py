"""An upload guard: spares the uploads of a long job until they are linked. A CAS document.

    path      stage/{incarnation}.json
    fields    incarnation, owner, note, epoch_us, write_id, state,
              then when set: query, batch, job

A writer whose upload meets a sweep uploads again, which is cheap. A job that has uploaded for
hours cannot. It registers a guard before its first upload, and the sweep spares the objects of its
incarnation while the guard is live. ``owner``, ``note`` and ``epoch_us`` (when it was registered)
are for people, who may revoke the guard of a job that is gone. ``query`` and ``batch`` name the
numbered batch that is uploaded, if it is one (see ``bulk_commit``): once the manifest has the
batch, the guard is over, whoever has linked it, and the sweep releases it. ``job`` is the
incarnation of the guard of the whole job of which this is a part: when that one is not live any
more, this one is over too, also if it was registered later.

    live ──► released      by the job, when it has linked its objects or given them up
    live ──► revoked       by a person; the sweep may take the objects, so the job cannot link them
    revoked ──► released   by the job, when it has noticed

A job links in this order: read the manifest, read the guard, put the manifest
(``UploadGuard.link``). A sweep revokes, then raises the epoch, which is a put on the manifest too.
So a job that saw its guard alive either wins against that put or loses its own.

The sweep deletes released guards. A revoked one stays: the put that registered it may arrive a
second time, and must not bring the guard of a job that still runs back to life. Persisted, also the
old name in paths: keep stable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import ClassVar, Literal

import msgspec

from stratalog.errors import Conflict, Corrupt, Invalid, NotFound
from stratalog.objectlog.stored import (
    Kind,
    Manifest,
    Natural,
    StoredObject,
    UploadNames,
    decode_document,
    load_manifest,
    own,
    writer_label,
)
from stratalog.objectlog.tree import Change, amend, delete_surely
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import (
    Document,
    Patience,
    PatientStore,
    Store,
    StoreLike,
    open_store,
    read_versions,
)

UPLOAD_GUARD_PREFIX = "stage/"
UPLOAD_GUARD_TIMEOUT_S = 60.0
LOOK_HINT = "Look for it with `stratalog sweep --dry-run`."
NOTE_LENGTH_MAX = 1000

State = Literal["live", "revoked", "released"]


class StoredUploadGuard(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    what: ClassVar[str] = "stage"

    incarnation: str
    owner: str
    note: str
    epoch_us: Natural
    write_id: str
    state: State
    query: str | None = None
    batch: Natural | None = None
    job: str | None = None

    def is_over(self, manifest: Manifest, live: Collection[str]) -> bool:
        """Whether what it protects is linked or never will be, as its batch or its job tells.

        ``live`` are the incarnations of all guards that are live.
        """
        if self.job is not None and self.job not in live:
            return True
        return self.is_linked(manifest)

    def is_linked(self, manifest: Manifest) -> bool:
        """Whether the log has the batch that it protects."""
        if self.query is None or self.batch is None:
            return False
        return (manifest.sinks or {}).get(self.query, -1) >= self.batch


class UploadGuard:
    """The upload guard of a job that runs. Made by ``UploadGuard.register``."""

    def __init__(
        self, store: Store, names: UploadNames, manifest: Manifest, runtime: Runtime
    ) -> None:
        self._store = store
        self._guards = UploadGuardStore(store, runtime=runtime)
        self._names = names
        self._manifest = manifest
        self._runtime = runtime
        self._released = False

    @classmethod
    async def register(
        cls,
        url: StoreLike,
        *,
        owner: str | None = None,
        note: str = "",
        query: str | None = None,
        batch: int | None = None,
        job: str | None = None,
        runtime: Runtime = DEFAULT_RUNTIME,
    ) -> UploadGuard:
        """A new guard, live from now on. ``owner`` is the host and the process if none is given."""
        store = PatientStore(open_store(url), runtime, UPLOAD_GUARD_TIMEOUT_S)
        manifest, _ = await load_manifest(store)
        manifest.check_writable()
        names = UploadNames(runtime)
        stored = StoredUploadGuard(
            incarnation=names.incarnation,
            owner=writer_label(owner),
            note=_checked_note(note),
            epoch_us=runtime.now_us(),
            write_id=runtime.new_id(),
            state="live",
            query=query,
            batch=batch,
            job=job,
        )
        guard = cls(store, names, manifest, runtime)
        await guard._guards.create(stored)
        return guard

    @property
    def incarnation(self) -> str:
        return self._names.incarnation

    @property
    def manifest(self) -> Manifest:
        """The log as it was just before the guard was registered."""
        return self._manifest

    @property
    def names(self) -> UploadNames:
        """The names that are guarded: upload under these."""
        return self._names

    async def is_live(self) -> bool:
        """Whether the sweep still spares the uploads."""
        return not self._released and await self._guards.is_live(self.incarnation)

    async def check_live(self) -> None:
        """``Conflict`` unless the guard is live. Call it between reading and putting a manifest."""
        if not await self.is_live():
            raise Conflict(
                f"the upload guard {self.incarnation} is not live; its uploads may be gone",
                path=upload_guard_path(self.incarnation),
                hint="Register another one and upload again.",
            )

    async def link(self, change: Change) -> Manifest:
        """Put a change that links what was uploaded, or ``Conflict`` if the guard was revoked.

        The guard is read after the manifest and before the put, each time.
        """
        patience = Patience(self._runtime, UPLOAD_GUARD_TIMEOUT_S)
        return await amend(self._store, change, patience, check=self.check_live)

    async def release(self) -> None:
        """Promise to link nothing more. What was not linked is left to the sweep."""
        self._released = True
        await self._guards.release(self.incarnation)


class UploadGuardStore:
    """The upload guards of one log."""

    def __init__(self, url: StoreLike, *, runtime: Runtime = DEFAULT_RUNTIME) -> None:
        store = open_store(url)
        if not isinstance(store, PatientStore):
            store = PatientStore(store, runtime, UPLOAD_GUARD_TIMEOUT_S)
        self._store = store
        self._runtime = runtime

    async def create(self, stored: StoredUploadGuard) -> None:
        await self._document(stored.incarnation).put(None, stored)

    async def load(self, incarnation: str) -> StoredUploadGuard:
        """The guard as it is now. ``NotFound`` if there is none."""
        return (await self._document(incarnation).load()).value

    async def is_live(self, incarnation: str) -> bool:
        try:
            return (await self.load(incarnation)).state == "live"
        except NotFound:
            return False

    async def list(self) -> list[StoredUploadGuard]:
        """All guards, also those that are not live any more."""
        found = await read_versions(
            self._store, UPLOAD_GUARD_PREFIX, decode_upload_guard, _incarnation_in
        )
        return [version.value for _, version in found]

    async def remove(self, incarnations: Sequence[str]) -> None:
        """Delete guards whose objects are all linked, or are given up by the job itself."""
        paths = [upload_guard_path(each) for each in incarnations]
        await delete_surely(self._store, paths, Patience(self._runtime, UPLOAD_GUARD_TIMEOUT_S))

    async def revoke(self, incarnation: str) -> StoredUploadGuard:
        """See to it that a guard is not live any more: its job can link nothing from now on.

        ``NotFound`` if there is none. One that was released or revoked before stays as it is.
        """
        return await self._move(incarnation, ("live",), "revoked")

    async def release(self, incarnation: str) -> None:
        """Promise that nothing more under this guard is linked. Idempotent."""
        with contextlib.suppress(NotFound):  # swept already, if this is the second call
            await self._move(incarnation, ("live", "revoked"), "released")

    async def _move(
        self, incarnation: str, before: tuple[State, ...], after: State
    ) -> StoredUploadGuard:
        """Bring a guard out of one of these states. States only go forward."""

        async def moved(stored: StoredUploadGuard) -> StoredUploadGuard | None:
            if stored.state not in before:
                return None
            return msgspec.structs.replace(stored, state=after)

        return (await self._document(incarnation).change(moved)).value

    def _document(self, incarnation: str) -> Document[StoredUploadGuard]:
        return Document(
            self._store,
            upload_guard_path(incarnation),
            decode_upload_guard,
            label=f"upload guard {incarnation}",
            runtime=self._runtime,
            timeout_s=UPLOAD_GUARD_TIMEOUT_S,
            hint_if_missing=LOOK_HINT,
        )


def upload_guard_path(incarnation: str) -> str:
    """Where a guard is stored. ``Invalid`` for text that is no incarnation."""
    path = f"{UPLOAD_GUARD_PREFIX}{incarnation}.json"
    if own(path) is None:
        raise Invalid(f"not the incarnation of an upload guard: {incarnation!r}", hint=LOOK_HINT)
    return path


def _incarnation_in(path: str) -> str | None:
    found = own(path)
    return found.incarnation if found is not None and found.kind is Kind.STAGE else None


def decode_upload_guard(data: bytes, path: str) -> StoredUploadGuard:
    """The guard in stored bytes. ``Corrupt`` if they hold none, or that of another incarnation."""
    stored, expected = decode_document(StoredUploadGuard, data, path), _incarnation_in(path)
    if stored.incarnation != expected:
        raise Corrupt(
            f"{path} is the guard of another incarnation",
            path=path,
            expected=expected,
            actual=stored.incarnation,
        )
    return stored


def _checked_note(note: str) -> str:
    text: object = note
    if not isinstance(text, str) or not text.isprintable() or len(text) > NOTE_LENGTH_MAX:
        raise Invalid(
            f"a note is printable text of at most {NOTE_LENGTH_MAX} characters",
            hint="Shorten it to one line that says what the job is.",
        )
    return note
