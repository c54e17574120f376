"""A stage: spares the uploads of a long job until they are linked, one JSON object changed by CAS.

    path      stage/{incarnation}.json
    fields    incarnation, owner, note, epoch_us, write_id, state,
              then when set: query, batch, job

A writer whose upload meets a sweep uploads again, which is cheap. A job that has uploaded for
hours cannot. It registers a stage before its first upload, and the sweep leaves the objects of its
incarnation alone while the stage is live. ``owner``, ``note`` and ``epoch_us`` (when it was
registered) are for people, who may revoke the stage of a job that is gone. ``query`` and ``batch``
say for what is uploaded, if that is a numbered batch (see ``sinking``): once the manifest has it,
the stage is over, whoever has linked it, and the sweep releases it. ``job`` is the incarnation of
another stage, that of the whole job of which this is a part: when that one is not live any more,
this one is over too, also if it was registered later.

    live ──► released      by the job, when it has linked its objects or given them up
    live ──► revoked       by a person; the sweep may take the objects, so the job cannot link them
    revoked ──► released   by the job, when it has noticed

A job links in this order: read the manifest, read the stage, put the manifest (``Stage.link``). A
sweep revokes, then raises the epoch, which is a put on the manifest too. So a job that saw its
stage alive either wins against that put or loses its own.

The sweep deletes released stages. A revoked one stays: the put that registered it may arrive a
second time, and must not bring the stage of a job that still runs back to life. Persisted: keep
stable.
"""

from __future__ import annotations

import asyncio
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
    load_manifest,
    own,
    writer_label,
)
from stratalog.objectlog.tree import DELETE_BATCH, Change, amend, delete_surely
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import (
    Blob,
    Landed,
    Patience,
    PatientStore,
    Store,
    StoreLike,
    create,
    open_store,
    swap,
)

STAGE_PREFIX = "stage/"
STAGE_TIMEOUT_S = 60.0
READS_AT_ONCE = 32
NOTE_LENGTH_MAX = 1000

State = Literal["live", "revoked", "released"]


class StoredStage(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The stored object."""

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

        ``live`` are the incarnations of all stages that are live.
        """
        if self.job is not None and self.job not in live:
            return True
        if self.query is None or self.batch is None:
            return False
        return (manifest.sinks or {}).get(self.query, -1) >= self.batch


class Stage:
    """The stage of a job that runs. Made by ``Stage.register``."""

    def __init__(
        self, store: Store, names: UploadNames, manifest: Manifest, runtime: Runtime
    ) -> None:
        self._store = store
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
    ) -> Stage:
        """A new stage, live from now on. ``owner`` is the host and the process if none is given."""
        store = PatientStore(open_store(url), runtime, STAGE_TIMEOUT_S)
        manifest, _ = await load_manifest(store)
        manifest.check_writable()
        names = UploadNames(runtime)
        stored = StoredStage(
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
        patience = Patience(runtime, STAGE_TIMEOUT_S)
        await create(store, stage_path(names.incarnation), stored.to_json(), patience)
        return cls(store, names, manifest, runtime)

    @property
    def incarnation(self) -> str:
        return self._names.incarnation

    @property
    def manifest(self) -> Manifest:
        """The log as it was just before the stage was registered."""
        return self._manifest

    @property
    def names(self) -> UploadNames:
        """The names that this stage protects: upload under these."""
        return self._names

    async def is_live(self) -> bool:
        """Whether the sweep still spares the uploads."""
        if self._released:
            return False
        try:
            stored, _ = await load_stage(self._store, self.incarnation)
        except NotFound:
            return False
        return stored.state == "live"

    async def check_live(self) -> None:
        """``Conflict`` unless the stage is live. Call it between reading and putting a manifest."""
        if not await self.is_live():
            raise Conflict(
                f"the stage {self.incarnation} is not live any more; its uploads may be gone",
                path=stage_path(self.incarnation),
                hint="Register another stage and upload again.",
            )

    async def link(self, change: Change) -> Manifest:
        """Put a change that links what was uploaded, or ``Conflict`` if the stage was revoked.

        The stage is read after the manifest and before the put, each time.
        """
        patience = Patience(self._runtime, STAGE_TIMEOUT_S)
        return await amend(self._store, change, patience, check=self.check_live)

    async def release(self) -> None:
        """Promise to link nothing more. What was not linked is left to the sweep."""
        self._released = True
        await release_stage(self._store, self.incarnation, self._runtime)


async def list_stages(url: StoreLike, *, runtime: Runtime = DEFAULT_RUNTIME) -> list[StoredStage]:
    """All stages of a log, also those that are not live any more."""
    store = PatientStore(open_store(url), runtime, STAGE_TIMEOUT_S)
    names = [own(row.path) async for row in store.list(STAGE_PREFIX)]
    listed = [
        name.incarnation
        for name in names
        if name is not None and name.kind is Kind.STAGE and name.incarnation is not None
    ]
    found: list[StoredStage] = []
    for start in range(0, len(listed), READS_AT_ONCE):
        some = listed[start : start + READS_AT_ONCE]
        read = await asyncio.gather(*(_peek(store, incarnation) for incarnation in some))
        found += [stored for stored in read if stored is not None]
    return found


async def _peek(store: Store, incarnation: str) -> StoredStage | None:
    """A stage that was listed. None if it has been deleted since."""
    try:
        return (await load_stage(store, incarnation))[0]
    except NotFound:
        return None


async def remove_stages(
    url: StoreLike, incarnations: Sequence[str], *, runtime: Runtime = DEFAULT_RUNTIME
) -> None:
    """Delete stages whose objects are all linked, or are given up by whoever uploaded them."""
    store = PatientStore(open_store(url), runtime, STAGE_TIMEOUT_S)
    paths = [stage_path(each) for each in incarnations]
    for start in range(0, len(paths), DELETE_BATCH):
        some = paths[start : start + DELETE_BATCH]
        await delete_surely(store, some, Patience(runtime, STAGE_TIMEOUT_S))


async def revoke_stage(
    url: StoreLike, incarnation: str, *, runtime: Runtime = DEFAULT_RUNTIME
) -> StoredStage:
    """See to it that a stage is not live any more: its job can link nothing from now on.

    ``NotFound`` if there is none. One that was released or revoked before stays as it is.
    """
    store = PatientStore(open_store(url), runtime, STAGE_TIMEOUT_S)
    return await _move(store, incarnation, ("live",), "revoked", runtime)


async def release_stage(store: Store, incarnation: str, runtime: Runtime) -> None:
    """Promise that nothing more of this stage is linked. Again without harm."""
    with contextlib.suppress(NotFound):  # swept already, if this is the second call
        await _move(store, incarnation, ("live", "revoked"), "released", runtime)


def stage_path(incarnation: str) -> str:
    """Where a stage is stored. ``Invalid`` for text that is no incarnation."""
    path = f"{STAGE_PREFIX}{incarnation}.json"
    if own(path) is None:
        raise Invalid(
            f"not the incarnation of a stage: {incarnation!r}",
            hint="Look for it with `stratalog sweep --dry-run`.",
        )
    return path


async def load_stage(store: Store, incarnation: str) -> tuple[StoredStage, str]:
    path = stage_path(incarnation)
    try:
        blob = await store.get(path)
    except NotFound:
        raise NotFound(
            f"there is no stage {incarnation}",
            path=path,
            hint="Look for it with `stratalog sweep --dry-run`.",
        ) from None
    stored = StoredStage.from_json(blob.data, path)
    if stored.incarnation != incarnation:
        raise Corrupt(
            f"{path} is the stage of another incarnation",
            path=path,
            expected=incarnation,
            actual=stored.incarnation,
        )
    return stored, blob.etag


async def _move(
    store: Store, incarnation: str, before: tuple[State, ...], after: State, runtime: Runtime
) -> StoredStage:
    """Bring a stage out of one of these states. One that is in another stays there.

    States only go forward, so somebody else can be faster twice at most.
    """
    path = stage_path(incarnation)
    patience = Patience(runtime, STAGE_TIMEOUT_S)
    while True:
        stored, etag = await load_stage(store, incarnation)
        if stored.state not in before:
            return stored
        moved = msgspec.structs.replace(stored, state=after, write_id=runtime.new_id())

        def is_ours(blob: Blob, write_id: str = moved.write_id) -> bool:
            return StoredStage.from_json(blob.data, path).write_id == write_id

        settled = await swap(store, path, moved.to_json(), etag, is_ours, patience)
        if isinstance(settled, Landed):
            return moved


def _checked_note(note: str) -> str:
    text: object = note
    if not isinstance(text, str) or not text.isprintable() or len(text) > NOTE_LENGTH_MAX:
        raise Invalid(
            f"a note is printable text of at most {NOTE_LENGTH_MAX} characters",
            hint="Shorten it to one line that says what the job is.",
        )
    return note
