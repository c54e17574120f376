"""Which objects the pins of a log are certain to hold, from what was stored and what was answered.

A pin counts from the moment when the call that made it returns, until a version is stored that is
released. Its expiry alone changes nothing.
"""

from __future__ import annotations

from simulation.linked_records import Objects, StoredTree
from simulation.promises import PromiseBroken, promise
from stratalog.objectlog.holds.pin import Pin
from stratalog.objectlog.holds.stored_pin import PIN_PREFIX, StoredPin, decode_pin, pin_path
from stratalog.objectlog.stored.snapshot import Entry


class HeldPins:
    """The stored version of each pin, and the keys of what those hold that count."""

    def __init__(self, objects: Objects, tree: StoredTree, log: str) -> None:
        self._objects = objects
        self._tree = tree
        self._log = log
        self._stored: dict[str, StoredPin] = {}
        self._held: dict[str, set[str]] = {}

    def landed(self, path: str, data: bytes) -> None:
        """A version was stored."""
        stored = decode_pin(data, path)
        self._stored[path] = stored
        if stored.released:
            self._held.pop(path, None)

    def acknowledged(self, pin: Pin) -> None:
        """A call gave this pin to its caller."""
        path = pin_path(pin.name)
        if self._stored[path].write_id == pin._stored.write_id:
            self._held[path] = self._keys(pin)
            missing = [key for key in self._held[path] if self._objects.get(key) is None]
            promise(not missing, "pinned", f"{path} holds {missing}, which are not stored")

    def is_kept(self, name: str) -> bool:
        """Whether a pin is stored, and not released."""
        stored = self._stored.get(pin_path(name))
        return stored is not None and not stored.released

    def counts(self, name: str) -> bool:
        """Whether what a caller was given still counts."""
        return pin_path(name) in self._held

    @property
    def kept(self) -> set[str]:
        """The keys of all that pins hold which are not released, whether they count or not."""
        return {
            self._objects.key(self._log, each)
            for stored in self._stored.values()
            if not stored.released
            for entry in stored.entries
            for each in self._below(entry)
            if each.start.offset < stored.limit.offset and stored.start.offset < each.limit.offset
        }

    @property
    def names(self) -> set[str]:
        """Of the pins that are not released."""
        paths = [path for path, stored in self._stored.items() if not stored.released]
        return {path.removeprefix(PIN_PREFIX).removesuffix(".json") for path in paths}

    def check_deletion(self, key: str) -> None:
        for path, held in self._held.items():
            if key in held:
                raise PromiseBroken("pinned", f"{key} was deleted, and {self._log}/{path} holds it")

    def reaches(self, owner: str) -> bool:
        """Whether one that counts holds an object of another log."""
        return any(key.startswith(owner + "/") for held in self._held.values() for key in held)

    def _below(self, entry: Entry) -> tuple[Entry, ...]:
        """A pin that never counted may point to what is gone."""
        try:
            return self._tree.below(entry, self._log)
        except PromiseBroken:
            return (entry,)

    def _keys(self, pin: Pin) -> set[str]:
        """All that its reader needs: what overlaps its stretch."""
        return {
            self._objects.key(self._log, each)
            for entry in pin.entries
            for each in self._tree.below(entry, self._log)
            if each.start.offset < pin.to_offset and pin.from_offset < each.limit.offset
        }
