"""What one log of a watched store has promised so far, and what it may put or lose next.

balance     every manifest that lands adds up, stays within its bound and keeps its newest
            fragment in the root
linked      whatever a manifest newly links is stored, with the bytes that it promises
growth      a manifest that lands ends at or after the one it replaces, and begins there too
records     what was linked once stays linked, in its place, until it is before the first offset,
            or was given up by its owner
collected   ``collected`` is the sum of exactly the records that are gone, and the setsum that of
            all records ever linked, both hashed by the harness
newest      the newest fragment stays as it is until another one follows
fields      fields that a manifest carried and nobody may touch are still there
sealed      a sealed log stays sealed and ends where it ended, with the successor that was named
held        no cursor that counts lies before the first offset
plan        a plan gives way to an empty one, or to itself once it is published
"""

from __future__ import annotations

import msgspec

from simulation.held_cursors import HeldCursors
from simulation.held_pins import HeldPins
from simulation.linked_records import LinkedRecords, Objects, StoredTree
from simulation.promises import PromiseBroken, promise
from stratalog.objectlog.append.committer import ROOT_BYTES_MAX
from stratalog.objectlog.holds.cursor import CURSOR_PREFIX, Cursor
from stratalog.objectlog.holds.fork_note import ForkNote, note_of
from stratalog.objectlog.holds.pin import Pin
from stratalog.objectlog.holds.stored_pin import PIN_PREFIX
from stratalog.objectlog.stored import decode_document
from stratalog.objectlog.stored.fragment import Fragment
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, Manifest, decode_manifest
from stratalog.objectlog.stored.plan import GARBAGE_PATH, Garbage
from stratalog.objectlog.stored.seal import is_being_destroyed, seal_of
from stratalog.objectlog.stored.snapshot import Entry


class WatchedLog:
    """The log under ``name``, or the only one of a store if that is empty."""

    def __init__(self, objects: Objects, name: str) -> None:
        self.name = name
        self._objects = objects
        self._tree = StoredTree(objects)
        self._manifest: Manifest | None = None
        self._plan: Garbage | None = None
        self._cursors = HeldCursors()
        self.pins = HeldPins(objects, self._tree, name)
        self.records = LinkedRecords(objects)
        self.reached: dict[str, Entry] = {}
        """What the manifest leads to, by its key in the whole store."""

        self.was_destroyed = False

    @property
    def exists(self) -> bool:
        return self._manifest is not None

    @property
    def manifest(self) -> Manifest:
        """The manifest that is stored."""
        assert self._manifest is not None
        return self._manifest

    @property
    def plan(self) -> Garbage | None:
        """The plan that is installed, if there is one."""
        return None if self._plan is None or self._plan.is_empty else self._plan

    @property
    def note(self) -> ForkNote | None:
        """Where it was forked from, if it was."""
        return None if self._manifest is None else note_of(self._manifest)

    @property
    def is_doomed(self) -> bool:
        """Whether it is gone, given up or being destroyed: nobody may rely on it."""
        if self._manifest is None or is_being_destroyed(self._manifest):
            return True
        return self.note is not None and self.note.state == "aborted"

    @property
    def is_open(self) -> bool:
        """Whether it can be read."""
        return not self.is_doomed and (self.note is None or self.note.state != "forking")

    def landed(self, path: str, data: bytes) -> None:
        """A version of a mutable object was stored."""
        if path == MANIFEST_PATH:
            self._manifest_landed(decode_manifest(data), data)
        elif path == GARBAGE_PATH:
            self._plan_landed(decode_document(Garbage, data, path))
        elif path.startswith(CURSOR_PREFIX):
            self._cursors.landed(path, data)
        elif path.startswith(PIN_PREFIX):
            self.pins.landed(path, data)

    def acknowledged(self, held: Cursor | Pin) -> None:
        """A cursor or a pin was given to its caller: it counts from here on."""
        if isinstance(held, Pin):
            self.pins.acknowledged(held)
        elif not self.is_doomed:
            self._cursors.acknowledged(held, self.manifest.first_offset)

    def deleted(self, path: str) -> None:
        """An object is gone, as all of a log that is being destroyed."""
        if path == MANIFEST_PATH:
            self._manifest = None
            self.was_destroyed = True
            self.reached = {}
        elif path == GARBAGE_PATH:
            self._plan = None

    def _manifest_landed(self, manifest: Manifest, data: bytes) -> None:
        before, self._manifest = self._manifest, manifest
        known, self.reached = self.reached, {}
        if self.is_doomed:
            return
        entries = [
            each for entry in manifest.entries for each in self._tree.below(entry, self.name)
        ]
        self.reached = {self._objects.key(self.name, entry): entry for entry in entries}
        if before is None or _is_opened(before, manifest):
            self.records = LinkedRecords(self._objects, self.name, manifest.first_offset)
        else:
            self._check_manifest(manifest, data)
            self._check_growth(before, manifest)
            _check_seal(before, manifest)
        for key, entry in self.reached.items():
            if key not in known:
                self._check_stored(key, entry)
        fragments = [entry for entry in entries if isinstance(entry, Fragment)]
        self.records.check(manifest, fragments)
        self._cursors.check(manifest.first_offset)

    def _check_manifest(self, manifest: Manifest, data: bytes) -> None:
        manifest.check()
        promise(len(data) <= ROOT_BYTES_MAX, "balance", f"a root of {len(data)} bytes")
        promise(
            bool(manifest.fragments) or not manifest.snapshots,
            "balance",
            "the newest fragment is not in the root",
        )

    def _check_growth(self, before: Manifest, after: Manifest) -> None:
        promise(
            before.tail.offset <= after.tail.offset and before.acc_bytes <= after.acc_bytes,
            "growth",
            f"{before.tail} became {after.tail}",
        )
        promise(
            before.first_offset <= after.first_offset,
            "growth",
            f"the first offset {before.first_offset} became {after.first_offset}",
        )
        if before.tail == after.tail and before.fragments and after.fragments:
            newest = (before.fragments[-1].path, after.fragments[-1].path)
            promise(newest[0] == newest[1], "newest", "{} became {}".format(*newest))
        promise(before.sweep_epoch <= after.sweep_epoch, "fields", "the sweep epoch went back")
        for query, batch in (before.sinks or {}).items():
            last = (after.sinks or {}).get(query, -1)
            promise(batch <= last, "fields", f"batch {batch} of {query} became {last}")
        missing = set(before.unknown or {}) - set(after.unknown or {})
        promise(not missing, "fields", f"lost {missing}")

    def _check_stored(self, key: str, entry: Entry) -> None:
        data = self._objects.get(key)
        if data is None:
            raise PromiseBroken("linked", f"{key} is not stored")
        if isinstance(entry, Fragment):
            same = len(data) == entry.num_bytes
            promise(same, "linked", f"{key} has {len(data)} bytes")

    def _plan_landed(self, plan: Garbage) -> None:
        before, self._plan = self._plan, plan
        if before is None or before.is_empty or plan.is_empty:
            return
        noted = msgspec.structs.replace(
            before, published_us=plan.published_us, write_id=plan.write_id
        )
        promise(
            plan == noted and plan.published_us is not None,
            "plan",
            f"{before.plan_id} gave way to {plan.plan_id}",
        )


def _is_opened(before: Manifest, after: Manifest) -> bool:
    """Whether this is the moment when a fork gets its records."""
    was, is_ = note_of(before), note_of(after)
    return was is not None and is_ is not None and was.state == "forking" and is_.state == "open"


def _check_seal(before: Manifest, after: Manifest) -> None:
    was, is_ = seal_of(before), seal_of(after)
    if was is None:
        return
    promise(is_ is not None, "sealed", "the seal was broken")
    promise(before.tail == after.tail, "sealed", f"it ended at {before.tail}, not {after.tail}")
    if was.successor is not None and is_ is not None:
        promise(was.successor == is_.successor, "sealed", "it has another successor")
