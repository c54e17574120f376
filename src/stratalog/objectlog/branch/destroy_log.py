"""Destroying a log: everything that it owns goes, or nothing at all.

There is no conditional delete. The order makes it safe beside writers and after a crash:

    1  list everything     a file that is not the log's, or a pin: refuse, nothing has changed
    2  seal, by CAS        writers lose their next put and stop with ``Sealed``
    3  list the pins       one that came before the seal: refuse; the log stays sealed
    4  release the source  a fork releases its hold on the log that it came from
    5  delete              all but the manifest, and list again until nothing is left
    6  the manifest        last, so that a run that was cut short finds its way again

Races:

1  A pin. It is written, then its owner reads the manifest, and it does not count on a log that is
   being destroyed. So it is in the list of step 3, or it does not count.
2  An upload that was under way when the log was sealed. It may land after all of this. Nothing
   links it, and destroying the place once more removes it.
3  A log that is created here meanwhile. Objects are deleted only after they were listed and then
   the manifest was seen to be sealed for destruction, or to be gone. Fragments and snapshots of
   another log have other names, so it loses no record.
4  The names that every log uses: manifest, plan, cursors and pins. Between the last look and the
   deletion, or if a deletion lands late, those of another log may have taken their place. This gap
   stays. Do not create a log where one is being destroyed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from stratalog.errors import Conflict, NotFound, Unavailable, Unknown
from stratalog.objectlog.collection import Amount
from stratalog.objectlog.holds import PinStore, abort_fork, note_of, pin_path
from stratalog.objectlog.stored import (
    MANIFEST_PATH,
    Kind,
    Manifest,
    Seal,
    as_fields,
    decode_manifest,
    is_being_destroyed,
    load_any_manifest,
    own,
    seal_of,
    writer_label,
)
from stratalog.objectlog.tree import DELETE_BATCH, amend, delete_surely
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Blob, Listed, Patience, PatientStore, Store, StoreLike, open_store

DESTROY_TIMEOUT_S = 60.0
NAMED_MAX = 5
PASSES_MAX = 100
UNIQUE = ("log/", "snapshot/")
"""Names that are never used twice, also not by another log at this place."""

OnProgress = Callable[[Amount], None]


@dataclass(frozen=True, slots=True)
class DestroyReport:
    """What was deleted, the manifest included."""

    url: str
    deleted: Amount


async def destroy(
    url: StoreLike,
    *,
    on_progress: OnProgress | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> DestroyReport:
    """Delete a log for ever, with all its cursors and stages.

    ``Conflict`` if a file that is not the log's lies among its objects, or if the log is pinned;
    then nothing was deleted. ``NotFound`` if there is no log. Idempotent: after a crash, or if it
    fails half-way, call it again.
    """
    store = PatientStore(open_store(url), runtime, DESTROY_TIMEOUT_S)
    return await _Destruction(store, on_progress, runtime).run()


class _Destruction:
    """One attempt, and what it has deleted so far."""

    def __init__(self, store: Store, on_progress: OnProgress | None, runtime: Runtime) -> None:
        self._store = store
        self._on_progress = on_progress
        self._runtime = runtime
        self._is_whole = False
        self._deleted = Amount()

    async def run(self) -> DestroyReport:
        self._is_whole = await self._is_a_log()
        if self._is_whole:
            await self._refuse_pins()
            await self._seal()
            await self._refuse_pins()
            await self._release_the_source()
        await self._delete_all_but_the_manifest()
        await self._delete_the_manifest()
        return DestroyReport(self._store.url, self._deleted)

    async def _is_a_log(self) -> bool:
        """Step 1. False if there is nothing but what a log without a manifest has left.

        A probe does not count: a log may be about to be created here.
        """
        absent: NotFound | None = None
        try:
            manifest, _ = await load_any_manifest(self._store)
            manifest.check_writable()
        except NotFound as error:
            absent = error
        strangers: list[str] = []
        empty = True
        async for row in self._store.list():
            found = own(row.path)
            empty = empty and found is not None and found.kind is Kind.TRIAL
            if found is None:
                strangers.append(row.path)
                if len(strangers) == NAMED_MAX:
                    break
        if absent is not None and (empty or strangers):
            raise absent
        if strangers:
            raise _refusal(strangers)
        return absent is None

    async def _refuse_pins(self) -> None:
        """Also step 3. Expired pins are released."""
        held, _ = await PinStore(self._store, runtime=self._runtime).release_expired()
        if held:
            named = [f"{pin.name} ({pin.note or pin.owner})" for pin in held[:NAMED_MAX]]
            raise Conflict(
                f"the log is pinned: {', '.join(named)}",
                path=pin_path(held[0].name),
                hint="Destroy its forks, and ask the owners of the other pins to release them; "
                "then destroy the log.",
            )

    async def _seal(self) -> None:
        """Step 2. Half a fork is given up. Done if another process has destroyed the log."""

        def change(manifest: Manifest) -> Manifest | None:
            if is_being_destroyed(manifest):
                return None
            now_us = self._runtime.now_us()
            before = seal_of(manifest) or Seal(sealed_us=now_us, writer=writer_label(None))
            after = msgspec.structs.replace(before, destroyed_us=now_us)
            return msgspec.structs.replace(
                manifest, seal=as_fields(after), write_id=self._runtime.new_id()
            )

        with contextlib.suppress(NotFound):
            manifest, _ = await load_any_manifest(self._store)
            note = note_of(manifest)
            if note is not None and note.state in ("forking", "aborted"):
                await abort_fork(self._store, runtime=self._runtime)
            else:
                await amend(self._store, change, self._patience(), load=load_any_manifest)

    async def _release_the_source(self) -> None:
        """Step 4, before the manifest goes, which alone knows the pin."""
        blob = await self._manifest_to_delete()
        note = None if blob is None else note_of(decode_manifest(blob.data))
        if note is not None and note.state != "detached":
            await note.release_source(self._store, self._runtime)

    async def _delete_all_but_the_manifest(self) -> None:
        """Step 5. Ends when a whole listing has found nothing."""
        for _ in range(PASSES_MAX):
            before = self._deleted
            await self._delete_what_is_listed()
            if self._deleted == before:
                return
        raise Conflict(
            "others keep adding objects to the log", hint="Stop them, then destroy it again."
        )

    async def _delete_what_is_listed(self) -> None:
        batch: list[Listed] = []
        async for row in self._store.list():
            found = own(row.path)
            if found is None:
                raise _refusal([row.path])
            if found.kind is not Kind.MANIFEST and (self._is_whole or found.kind is not Kind.TRIAL):
                batch.append(row)
            if len(batch) == DELETE_BATCH:
                await self._delete(batch)
                batch = []
        if batch:
            await self._delete(batch)

    async def _delete(self, rows: Sequence[Listed]) -> None:
        """A name that another log may use goes alone, so that little can come in between."""
        unique = [row for row in rows if row.path.startswith(UNIQUE)]
        shared = [row for row in rows if not row.path.startswith(UNIQUE)]
        for group in ([unique] if unique else []) + [[row] for row in shared]:
            await self._manifest_to_delete()
            await delete_surely(self._store, [row.path for row in group], self._patience())
            self._note(Amount(len(group), sum(row.size for row in group)))

    async def _delete_the_manifest(self) -> None:
        """Step 6. It is looked at again before each attempt."""
        patience = self._patience()
        while (blob := await self._manifest_to_delete()) is not None:
            try:
                await self._store.delete_many([MANIFEST_PATH])
            except (Unavailable, Unknown) as error:
                if not await patience.pause():
                    raise Unavailable(f"could not delete in time: {error}") from error
            else:
                self._note(Amount(1, len(blob.data)))
                return

    async def _manifest_to_delete(self) -> Blob | None:
        """The manifest of a log that cannot be used any more. None if it is gone."""
        try:
            blob = await self._store.get(MANIFEST_PATH)
        except NotFound:
            return None
        manifest = decode_manifest(blob.data)
        note = note_of(manifest)
        is_given_up = note is not None and note.state == "aborted"
        if not (is_given_up or is_being_destroyed(manifest)):
            raise Conflict(
                f"another log was created at {self._store.url} meanwhile",
                path=MANIFEST_PATH,
                hint="No record of it was deleted; look at its cursors and pins. "
                "Destroy it as well, if that is what you want.",
            )
        return blob

    def _note(self, amount: Amount) -> None:
        self._deleted += amount
        if self._on_progress is not None:
            self._on_progress(self._deleted)

    def _patience(self) -> Patience:
        return Patience(self._runtime, DESTROY_TIMEOUT_S)


def _refusal(strangers: Sequence[str]) -> Conflict:
    return Conflict(
        f"there are files that are not the log's: {', '.join(strangers)}",
        path=strangers[0],
        hint="Move them to another place, or remove them yourself; then destroy the log.",
    )
