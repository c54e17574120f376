"""Taking a backup beside writers, collections and compactions.

    cursors, policy ──► pin ──► manifest ──► its objects, children first ──► the backup itself

The pin keeps what the manifest leads to while it is copied. What it does not keep (something that
was linked or rewritten between pin and manifest) may be gone before it is copied. Then the newest
manifest is read and the copying goes on with that; what was copied stays. The backup is one
immutable object, put last, so one that is there is whole. Nothing at the place is ever changed or
deleted. ``docs/design/019-backup.md`` has the cases.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from stratalog.errors import Conflict, Denied, Exists, Invalid, NotFound, StratalogError, Trimmed
from stratalog.objectlog.backup.backup_state import StoredBackup
from stratalog.objectlog.backup.copy_objects import BackupProgress, ObjectCopy
from stratalog.objectlog.backup.taken_backups import Backup, backup_paths, read_backup
from stratalog.objectlog.holds import Cursor, CursorStore, Pin, PinStore
from stratalog.objectlog.options import CopyOptions
from stratalog.objectlog.stored import (
    FORMAT,
    INCARNATION_LENGTH,
    MANIFEST_PATH,
    POLICY_PATH,
    Fields,
    Manifest,
    Policy,
    check_note,
    decode_document,
    load_manifest,
    writer_label,
)
from stratalog.objectlog.tree import on_newest_tree
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import (
    Patience,
    PatientStore,
    StoreLike,
    closed,
    open_json,
    open_store,
    put_once,
    redact,
)

DEFAULT_OPTIONS = CopyOptions()
PIN_ATTEMPTS_MAX = 5


@dataclass(frozen=True, slots=True)
class BackedUp:
    """A backup that was taken."""

    backup: Backup
    objects: int
    """How many objects were copied. What earlier backups have copied is not counted."""

    num_bytes: int


async def backup(
    url: StoreLike,
    dest: StoreLike,
    *,
    note: str = "",
    verify: bool = False,
    on_progress: Callable[[BackupProgress], None] | None = None,
    writer: str | None = None,
    options: CopyOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> BackedUp:
    """Take a backup of a log: all that it has now, verified, at another place.

    A place keeps any number of backups of one log and copies each object once. Called again after
    it was cut short it goes on. What earlier backups have copied is looked for by name and size,
    and what is missing is copied again; with ``verify`` its bytes are read and compared as well,
    and ``Corrupt`` names what is damaged. ``Conflict`` if the place holds backups of another log;
    ``Invalid`` for a fork, which shares objects with its source.
    """
    run = _Backup(url, dest, on_progress, writer_label(writer), options, runtime, verify=verify)
    return await run.run(check_note(note))


class _Backup:
    def __init__(
        self,
        url: StoreLike,
        dest: StoreLike,
        on_progress: Callable[[BackupProgress], None] | None,
        writer: str,
        options: CopyOptions,
        runtime: Runtime,
        *,
        verify: bool,
    ) -> None:
        self._source = PatientStore(open_store(url), runtime, options.timeout_s)
        self._store = open_store(dest)
        self._dest = PatientStore(self._store, runtime, options.timeout_s)
        self._cursors = CursorStore(self._source, writer=writer, runtime=runtime)
        self._pins = PinStore(self._source, owner=writer, runtime=runtime)
        self._pin: Pin | None = None
        self._options = options
        self._runtime = runtime
        self._objects = ObjectCopy(
            self._source,
            self._dest,
            options,
            runtime,
            on_progress,
            self._keep_pin,
            verify=verify,
        )
        check_apart(self._source.url, self._dest.url)

    async def run(self, note: str) -> BackedUp:
        manifest, _ = await load_manifest(self._source)
        manifest.check_writable()
        await self._check_place()
        cursors, policy = await self._cursors.list(), await self._policy()
        backup_id = self._runtime.new_id(INCARNATION_LENGTH)
        try:
            await self._hold(backup_id)
            copied = await on_newest_tree(self._source, self._copy)
            taken = StoredBackup(
                format=FORMAT,
                write_id=backup_id,
                source=redact(self._source.url),
                taken_us=self._runtime.now_us(),
                note=note,
                manifest=msgspec.json.decode(copied.to_json(), type=Fields),
                cursors=_held(cursors, copied),
                policy=policy,
            )
            patience = Patience(self._runtime, self._options.timeout_s)
            await put_once(self._store, lambda: taken.path, closed(taken), patience)
        finally:
            await self._release()
        done = self._objects.copied
        return BackedUp(Backup.of(taken, copied), done.objects, done.bytes)

    async def _copy(self, manifest: Manifest) -> Manifest:
        manifest.check_writable()
        await self._objects.run(manifest.entries)
        return manifest

    async def _check_place(self) -> None:
        """Backups of one log only, and no log: each would take the other's objects for its own."""
        with contextlib.suppress(NotFound):
            await self._dest.get(MANIFEST_PATH)
            raise Exists(
                f"there is a log at {self._dest.url}",
                path=MANIFEST_PATH,
                hint="Choose a place for backups only.",
            )
        paths = await backup_paths(self._dest)
        if not paths:
            return
        before = await read_backup(self._dest, paths[-1])
        if before.source != redact(self._source.url):
            raise Conflict(
                f"{self._dest.url} holds backups of {before.source}",
                path=before.path,
                hint="Choose another place: one for each log.",
                expected=redact(self._source.url),
                actual=before.source,
            )

    async def _policy(self) -> Fields | None:
        try:
            data = (await self._source.get(POLICY_PATH)).data
        except NotFound:
            return None
        if decode_document(Policy, data, POLICY_PATH).removed:
            return None
        return msgspec.json.decode(open_json(data, POLICY_PATH), type=Fields)

    # Holding

    async def _hold(self, backup_id: str) -> None:
        """Pin what there is, if that is permitted. Without a pin the copying may begin again."""
        for attempt in range(PIN_ATTEMPTS_MAX):
            manifest, _ = await load_manifest(self._source)
            if not manifest.count:
                return
            with contextlib.suppress(Trimmed):  # collected since the manifest was read
                try:
                    self._pin = await self._pins.create(
                        f"backup_{backup_id}_{attempt}",
                        manifest.first_offset,
                        note="held by a backup",
                        expires_us=self._expiry_us(),
                    )
                except Denied:
                    return
                return

    async def _keep_pin(self) -> None:
        """Renew the pin once half of its time is over. One that was released is done without."""
        pin = self._pin
        if pin is None or pin.expires_us is None:
            return
        left_us = pin.expires_us - self._runtime.now_us()
        if 2 * left_us < self._options.pin_expiry_s * 1_000_000:
            try:
                self._pin = await pin.renew(self._expiry_us())
            except (Conflict, Trimmed):
                self._pin = None

    async def _release(self) -> None:
        """What cannot be released now ends by its expiry."""
        if self._pin is not None:
            with contextlib.suppress(StratalogError):
                await self._pin.release()

    def _expiry_us(self) -> int:
        return self._runtime.now_us() + int(self._options.pin_expiry_s * 1_000_000)


def check_apart(one: str, other: str) -> None:
    """Refuse places of which one lies in the other: a log would meet files that are not its own."""
    first, second = (f"{url.rstrip('/')}/" for url in (one, other))
    if first.startswith(second) or second.startswith(first):
        raise Invalid(
            "a log and its backups lie apart from each other", hint="Choose another place."
        )


def _held(cursors: list[Cursor], manifest: Manifest) -> dict[str, int]:
    """The offset that each cursor held. It was read before the manifest, and so may lie before the
    first record by now."""
    first, tail = manifest.first_offset, manifest.tail.offset
    return {each.name: min(max(each.offset, first), tail) for each in cursors}
