"""The policy of a log: set and removed together with the cursor that holds what it keeps.

A log with a policy is held by a cursor of its own, ``policy``. So nothing that the policy keeps is
collected because some other cursor has moved on, and retention is no more than moving this cursor
forward: collection still waits for the slowest.

    set       read policy ──► cursor to the first offset ──► put policy ──► cursor once more
    remove    read cursor ──► put a tombstone ──► delete the cursor
    retain    read cursor ──► read policy ──► move the cursor

The cursor is there before the policy, and goes after it. Each first reads what the other one
changes last, with the witness that it needs in the end, so a change in between is noticed.
``docs/design/012-policy.md`` says why the cursor is written once more.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

import msgspec

from stratalog.errors import Conflict, Exists, NotFound, Trimmed
from stratalog.objectlog.holds.cursor import Cursor, CursorStore
from stratalog.objectlog.options import MIB
from stratalog.objectlog.stored import (
    FORMAT,
    GARBAGE_PATH,
    POLICY_CURSOR,
    POLICY_PATH,
    Live,
    Policy,
    decode_document,
    load_manifest,
    writer_label,
)
from stratalog.objectlog.tree import RetentionLimits, Tree, find_retention_cut, on_newest_tree
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Document, PatientStore, StoreLike, Version, open_store

log = logging.getLogger(__name__)

POLICY_TIMEOUT_S = 60.0
ATTEMPTS_MAX = 5
SNAPSHOT_CACHE_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True)
class Retained:
    """How far retention has moved the cursor of a policy."""

    offset_before: int
    offset: int
    """What lies before it may be collected, as far as this cursor goes."""

    num_bytes: int
    """How many bytes of fragments lie before it now."""

    @property
    def has_moved(self) -> bool:
        return self.offset > self.offset_before


class PolicyStore:
    """The policy of one log."""

    def __init__(
        self, url: StoreLike, *, writer: str | None = None, runtime: Runtime = DEFAULT_RUNTIME
    ) -> None:
        store = open_store(url)
        self._store = PatientStore(store, runtime, POLICY_TIMEOUT_S)
        self._cursors = CursorStore(store, writer=writer, runtime=runtime)
        self._document = Document(
            self._store,
            POLICY_PATH,
            partial(decode_document, Policy),
            label="policy",
            runtime=runtime,
            timeout_s=POLICY_TIMEOUT_S,
            is_tombstone=lambda stored: stored.removed,
            hint_if_missing="Set one: `stratalog policy set`.",
            hint_if_changed="Look at it with `stratalog policy get`, then decide again.",
        )
        self._writer = writer_label(writer)
        self._runtime = runtime

    async def load(self) -> Policy:
        """The policy as it is now. ``NotFound`` if there is none."""
        return (await self._document.load()).value

    async def set(self, policy: Policy) -> Policy:
        """Put this policy in the place of whatever is there; gives it as it is stored.

        The log is held from its first offset on, also what an earlier policy had released.
        ``Conflict`` if others change the policy meanwhile, or while a collection is under way that
        an earlier policy allowed.
        """
        policy.check_useful()
        before = await self._document.read()
        cursor = await self._take_hold()
        is_same = before is not None and before.value.to_dict() == policy.to_dict()
        stored = msgspec.structs.replace(
            self._stamped(policy, before),
            judged=before.value.judged if before is not None and is_same else None,
            removed=False,
        )
        version = await self._document.put(before, stored)
        if before is not None:
            await self._hold_once_more(cursor)
        return version.value

    async def remove(self) -> None:
        """Remove the policy, then its cursor. ``NotFound`` if there is neither."""
        for attempt in range(ATTEMPTS_MAX):
            cursor = await self._cursor()
            found = await self._document.read()
            has_policy = found is not None and not found.value.removed
            if cursor is None and not has_policy:
                if attempt == 0:
                    raise NotFound("there is no policy to remove", path=POLICY_PATH)
                return None
            if attempt and has_policy:
                raise self._document.changed()
            await self._document.put(found, self._stamped(Policy(removed=True), found))
            if cursor is None:
                return None
            try:
                return await cursor.delete()
            except Conflict:
                continue  # retention has moved it, or another one holds the log now
        raise self._document.changed()

    async def hold(self) -> int:
        """From where on the log is held. Makes the cursor again if somebody has deleted it."""
        cursor = await self._cursor()
        if cursor is not None:
            return cursor.offset
        cursor = await self._take_hold()
        found = await self._document.read()
        if found is None or found.value.removed:
            await cursor.delete()
            raise self._document.changed()
        return cursor.offset

    async def retain(
        self, policy: Policy, *, by_size: bool = True, judged: int | None = None
    ) -> Retained:
        """Move the cursor forward over what the policy, as it was loaded, retains no longer.

        ``Conflict`` if the policy was changed since. Without ``by_size`` only the age counts. By
        size only what lies before ``judged`` counts, and goes: of the rest nobody knows how much
        will be left of it.
        """
        cursor = await self._cursor()
        found = await self._document.read()
        if cursor is None or found is None or found.value.write_id != policy.write_id:
            await load_manifest(self._store)  # without a log, `NotFound` is the better error
            raise self._document.changed()
        rule = policy.retain
        if rule is None:
            return Retained(cursor.offset, cursor.offset, 0)
        age_us = None if rule.age_s is None else int(rule.age_s * 1e6)
        before_us = None if age_us is None else self._runtime.now_us() - age_us
        limits = RetentionLimits(before_us, rule.bytes if by_size else None, judged)
        tree = Tree(self._store, SNAPSHOT_CACHE_BYTES)
        find = partial(find_retention_cut, tree, limits=limits)
        cut = await on_newest_tree(self._store, find)
        if cut.offset <= cursor.offset:
            return Retained(cursor.offset, cursor.offset, cut.num_bytes)
        moved = await cursor.move(cut.offset)
        return Retained(cursor.offset, moved.offset, cut.num_bytes)

    async def check_live(self, live: Live | None) -> None:
        """``Conflict`` unless this is still what lives, as the policy says."""
        found = await self._document.read()
        if found is None or found.value.removed or found.value.live != live:
            raise self._document.changed()

    async def note_judged(self, policy: Policy, up_to: int) -> bool:
        """Write down how far the rule was asked. False if the policy was changed since."""
        found = await self._document.read()
        if found is None or found.value.write_id != policy.write_id:
            return False
        try:
            await self._document.put(found, msgspec.structs.replace(found.value, judged=up_to))
        except Conflict:
            return False
        return True

    # The cursor

    async def _cursor(self) -> Cursor | None:
        try:
            return await self._cursors.load(POLICY_CURSOR)
        except NotFound:
            return None

    async def _take_hold(self) -> Cursor:
        """The cursor at the first offset of the log, where it counts."""
        for _ in range(ATTEMPTS_MAX):
            manifest, _etag = await load_manifest(self._store)
            cursor = await self._cursor()
            try:
                if cursor is None:
                    return await self._cursors.create(POLICY_CURSOR, manifest.first_offset)
                return await cursor.move(manifest.first_offset)
            except (Trimmed, Exists):
                continue
            except Conflict as error:
                if error.path == GARBAGE_PATH:
                    raise
        raise self._document.changed()

    async def _hold_once_more(self, cursor: Cursor) -> None:
        """Invalidate the cursor as those have loaded it who read the policy before this one.

        What a collection is taking just now was released before this policy was there.
        """
        try:
            await cursor.move(cursor.offset)
        except (Conflict, Trimmed):
            try:
                await self._take_hold()
            except (Conflict, Trimmed) as error:
                if await self._cursor() is None:
                    raise
                log.info("what an earlier policy released is being collected: %s", error)

    def _stamped(self, policy: Policy, before: Version[Policy] | None) -> Policy:
        """A policy as this writer stores it now, in the place of the one before."""
        return msgspec.structs.replace(
            policy,
            epoch_us=self._runtime.now_us(),
            writer=self._writer,
            format=FORMAT,
            write_id=None,
            unknown=None if before is None else before.value.unknown,
        )
