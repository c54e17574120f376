"""Bringing a log back from a backup, to a place where nothing is.

    mark the place ──► objects, children first ──► cursors, policy ──► manifest ──► remove the mark

The mark tells a restoration that was cut short from a place that somebody else uses. The manifest
comes last, so a log that is there has all that it leads to, and all cursors that hold it. It gets a
write id and a sweep epoch that the log never had: what was begun for the log that was lost, an
upload or a put that is still under way, is not linked into this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from stratalog.errors import Exists, NotFound
from stratalog.objectlog.backup.back_up import DEFAULT_OPTIONS, check_apart
from stratalog.objectlog.backup.backup_state import RestoringMark, StoredBackup, restoring_path
from stratalog.objectlog.backup.copy_objects import BackupProgress, ObjectCopy
from stratalog.objectlog.backup.taken_backups import Backup, find_backup
from stratalog.objectlog.holds import StoredCursor, cursor_path
from stratalog.objectlog.options import CopyOptions
from stratalog.objectlog.stored import (
    MANIFEST_PATH,
    POLICY_PATH,
    Kind,
    LogPosition,
    Manifest,
    Policy,
    decode_document,
    encode_manifest,
    load_manifest,
    own,
    writer_label,
)
from stratalog.objectlog.tree import delete_surely, missing
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Patience, PatientStore, StoreLike, closed, create, open_store, probe


@dataclass(frozen=True, slots=True)
class Restored:
    """A log that was brought back."""

    url: str
    backup: Backup
    objects: int
    """How many objects this run has copied. What earlier runs did is not counted."""

    num_bytes: int


async def restore(
    dest: StoreLike,
    url: StoreLike,
    *,
    backup: str | None = None,
    cursors: bool = True,
    on_progress: Callable[[BackupProgress], None] | None = None,
    writer: str | None = None,
    options: CopyOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Restored:
    """Bring a log back at ``url`` from the newest backup at ``dest``, or from the one of this id.

    With its policy and, unless told otherwise, its cursors; without pins. Called again after it was
    cut short it goes on. ``Exists`` if anything is at ``url``.
    """
    run = _Restoration(dest, url, on_progress, writer_label(writer), options, runtime)
    return await run.run(backup, cursors)


async def check_backup(
    dest: StoreLike,
    *,
    backup: str | None = None,
    on_progress: Callable[[BackupProgress], None] | None = None,
    options: CopyOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Restored:
    """Read all that a backup leads to and verify it, as ``restore`` does. Read-only."""
    store = PatientStore(open_store(dest), runtime, options.timeout_s)
    stored = await find_backup(store, backup)
    manifest = stored.log
    objects = ObjectCopy(store, None, options, runtime, on_progress)
    await _copied(objects, manifest)
    done = objects.copied
    return Restored(store.url, Backup.of(stored, manifest), done.objects, done.bytes)


class _Restoration:
    def __init__(
        self,
        dest: StoreLike,
        url: StoreLike,
        on_progress: Callable[[BackupProgress], None] | None,
        writer: str,
        options: CopyOptions,
        runtime: Runtime,
    ) -> None:
        self._backups = PatientStore(open_store(dest), runtime, options.timeout_s)
        self._store = open_store(url)
        self._target = PatientStore(self._store, runtime, options.timeout_s)
        self._writer = writer
        self._options = options
        self._runtime = runtime
        self._objects = ObjectCopy(self._backups, self._target, options, runtime, on_progress)
        check_apart(self._backups.url, self._target.url)

    async def run(self, backup_id: str | None, cursors: bool) -> Restored:
        stored = await find_backup(self._backups, backup_id)
        manifest = stored.log
        mark = await self._marked(restoring_path(stored.id))
        if not await self._is_done(mark):
            await _copied(self._objects, manifest)
            if cursors:
                await self._put_cursors(stored)
            await self._put_policy(stored)
            await self._put_manifest(manifest, mark)
        await delete_surely(self._store, [restoring_path(stored.id)], self._patience())
        done = self._objects.copied
        where = Backup.of(stored, manifest)
        return Restored(self._target.url, where, done.objects, done.bytes)

    async def _marked(self, path: str) -> RestoringMark:
        """The mark of this restoration, or of one that began before. ``Exists`` without a mark, if
        anything is there."""
        try:
            blob = await self._target.get(path)
        except NotFound:
            async for row in self._target.list():
                found = own(row.path)
                if found is None or found.kind is not Kind.TRIAL:
                    raise self._taken(row.path) from None
            await probe(self._target, self._runtime)
            new_id = self._runtime.new_id
            mark = RestoringMark(write_id=new_id(), sweep_epoch=int(new_id(8), 16))
            await self._put_if_missing(path, closed(mark))
            blob = await self._target.get(path)  # perhaps that of another run
        return decode_document(RestoringMark, blob.data, path)

    async def _is_done(self, mark: RestoringMark) -> bool:
        """Whether an earlier run has put the manifest, and was cut short after that."""
        try:
            manifest, _ = await load_manifest(self._target)
        except NotFound:
            return False
        if mark.has_become(manifest):
            return True
        raise self._taken(MANIFEST_PATH)

    async def _put_cursors(self, stored: StoredBackup) -> None:
        for name, offset in stored.cursors.items():
            cursor = StoredCursor(
                position=LogPosition(offset),
                epoch_us=self._runtime.now_us(),
                writer=self._writer,
                write_id=self._runtime.new_id(),
            )
            await self._put_if_missing(cursor_path(name), closed(cursor))

    async def _put_policy(self, stored: StoredBackup) -> None:
        if stored.policy is not None:
            data = msgspec.json.encode(stored.policy)
            policy = msgspec.structs.replace(
                decode_document(Policy, data, POLICY_PATH), write_id=self._runtime.new_id()
            )
            await self._put_if_missing(POLICY_PATH, closed(policy))

    async def _put_manifest(self, manifest: Manifest, mark: RestoringMark) -> None:
        fresh = msgspec.structs.replace(
            manifest,
            write_id=mark.write_id,
            sweep_epoch=mark.sweep_epoch,
            fork=None,
        )
        await self._put_if_missing(MANIFEST_PATH, encode_manifest(fresh))
        await self._is_done(mark)  # or somebody else has made a log here meanwhile

    async def _put_if_missing(self, path: str, data: bytes) -> None:
        """Each version has a write id of its own, so what an earlier run has put is not equal."""
        try:
            await create(self._store, path, data, self._patience())
        except Exists:
            return

    def _patience(self) -> Patience:
        return Patience(self._runtime, self._options.timeout_s)

    def _taken(self, path: str) -> Exists:
        return Exists(
            f"something is at {self._target.url} already: {path}",
            path=path,
            hint="A log is restored to a place where nothing is. Choose another one; to bring one "
            "back where it was, move what is left of it away first.",
        )


async def _copied(objects: ObjectCopy, manifest: Manifest) -> None:
    try:
        await objects.run(manifest.entries)
    except NotFound as gone:
        raise missing(gone.path) from None
