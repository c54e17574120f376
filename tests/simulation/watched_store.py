"""The store under a simulation: sees every put and deletion, and knows what none of them may do.

name        no two contents are ever sent under one immutable name
version     no two versions of a mutable object are ever byte-equal
reached     nothing is deleted that a stored manifest leads to, be it that of another log
pinned      nothing is deleted that a pin holds which counts
forked      an open fork has its pin for as long as it reaches into its source
erased      what a certificate calls erased is in no object of its log, and nobody stores it again;
            but what was sent before may land after, and is left for the next sweep
successor   a log that continues another one is the one that its seal names, and starts at its end

What a single log has promised besides is told in ``watched_log``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from random import Random

from simulation.linked_records import LinkedRecords, Objects
from simulation.promises import PromiseBroken, promise
from simulation.watched_log import WatchedLog
from stratalog.objectlog.erasure.certificate import Certificate, decode_certificate
from stratalog.objectlog.holds.cursor import Cursor
from stratalog.objectlog.holds.pin import Pin
from stratalog.objectlog.stored import open_certificate
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, Manifest
from stratalog.objectlog.stored.plan import Garbage
from stratalog.objectlog.stored.seal import predecessor_of, seal_of
from stratalog.store.memory import MemoryStore
from stratalog.store.protocol import Blob, Head, Listed
from stratalog.testing.loop import PROCESS

IMMUTABLE = ("log/", "snapshot/")
MUTABLE = ("manifest/", "gc/", "cursor/", "pin/", "stage/", "certificate/")
NEVER_DELETED = ("manifest/", "gc/", "cursor/", "pin/", "certificate/")


class WatchedBucket:
    """A memory store with logs side by side. What it objects to is kept in ``broken``."""

    def __init__(self) -> None:
        self._store = MemoryStore("watched")
        self._objects = Objects(self._store._objects, self._store.url)
        self._contents: dict[str, bytes] = {}
        self._versions: set[tuple[str, bytes]] = set()
        self.logs: dict[str, WatchedLog] = {}
        self.broken: PromiseBroken | None = None

    @property
    def url(self) -> str:
        return self._store.url

    async def get(self, path: str) -> Blob:
        return await self._store.get(path)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        return await self._store.get_range(path, start, length)

    async def head(self, path: str) -> Head:
        return await self._store.head(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self.watch(lambda: self._check_name(path, data))
        etag = await self._store.put_if_absent(path, data)
        self.watch(lambda: self._landed(path, data))
        return etag

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        new_etag = await self._store.put_if_match(path, data, etag)
        self.watch(lambda: self._landed(path, data))
        return new_etag

    def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        return self._store.list(prefix, after)

    async def delete_many(self, paths: Sequence[str]) -> None:
        self.watch(lambda: self._check_deletion(paths))
        await self._store.delete_many(paths)
        for path in paths:
            name, rest = self.split(path)
            self.log(name).deleted(rest)

    def raise_if_broken(self) -> None:
        if self.broken is not None:
            raise self.broken

    def log(self, name: str) -> WatchedLog:
        """The log of this name, whether it is there or not."""
        if name not in self.logs:
            self.logs[name] = WatchedLog(self._objects, name)
        return self.logs[name]

    def split(self, path: str) -> tuple[str, str]:
        """The log that an object belongs to, and its path there."""
        name, _, rest = path.partition("/")
        return name, rest

    def watch(self, check: Callable[[], None]) -> None:
        """Remember the first objection."""
        try:
            check()
        except PromiseBroken as broken:
            self.broken = self.broken or broken
        except Exception as error:  # something that cannot even be checked
            self.broken = self.broken or PromiseBroken("balance", repr(error))

    def unreached(self, name: str) -> set[str]:
        """Data of a log that nothing leads to."""
        stored = {
            path
            for path in self._store._objects
            if self.split(path)[0] == name and self.split(path)[1].startswith(IMMUTABLE)
        }
        reached = {key for log in self.logs.values() if not log.is_doomed for key in log.reached}
        return stored - reached

    def _check_name(self, path: str, data: bytes) -> None:
        if self.split(path)[1].startswith(IMMUTABLE):
            same = self._contents.setdefault(path, data) == data
            promise(same, "name", f"two contents under {path}")

    def _landed(self, path: str, data: bytes) -> None:
        name, rest = self.split(path)
        if rest.startswith("log/") and PROCESS.get():  # the network has none
            self.log(name).records.check_erased(path, data)
        if not rest.startswith(MUTABLE):
            return
        log = self.log(name)
        if not log.is_doomed:  # what lands late where a log is destroyed is nobody's any more
            # A stage that was released is deleted, and the put that registered it may come again.
            is_new = (path, data) not in self._versions or rest.startswith("stage/")
            promise(is_new, "version", f"{path} as it was before")
        self._versions.add((path, data))
        is_new = not log.exists
        log.landed(rest, data)
        if rest == MANIFEST_PATH:
            self._check_fork(log)
            if is_new:
                self._check_predecessor(log.manifest)
        elif rest.startswith("certificate/"):
            self._certified(log, decode_certificate(open_certificate(data, rest), rest))
        elif rest.startswith("pin/"):
            for each in self.logs.values():
                self._check_fork(each)

    def _certified(self, log: WatchedLog, certificate: Certificate) -> None:
        if not certificate.complete:
            return
        promise(certificate.balances, "erased", f"{certificate.path} does not balance")
        log.records.erase(certificate.erased)
        for path, data in self._store._objects.items():
            name, rest = self.split(path)
            if name == log.name and rest.startswith("log/"):
                log.records.check_erased(path, data)

    def _check_fork(self, log: WatchedLog) -> None:
        note = log.note
        if log.is_doomed or note is None or note.state != "open":
            return
        owner = self._objects.owner(note.source)
        reaches = any(key.startswith(owner + "/") for key in log.reached)
        if reaches or log.pins.reaches(owner):
            promise(
                self.log(owner).pins.is_kept(note.pin),
                "forked",
                f"{log.name} reaches into {owner} without its pin {note.pin}",
            )

    def _check_predecessor(self, manifest: Manifest) -> None:
        back = predecessor_of(manifest)
        if back is None:
            return
        before = self.log(self._objects.owner(back.url))
        if not before.exists:
            return
        seal = seal_of(before.manifest)
        promise(
            seal is not None and seal.successor is not None and seal.successor.id == back.id,
            "successor",
            f"{before.name} does not name it",
        )
        promise(
            manifest.tail.offset == before.manifest.tail.offset,
            "successor",
            f"it starts at {manifest.tail}, and {before.name} ends at {before.manifest.tail}",
        )

    def _check_deletion(self, paths: Sequence[str]) -> None:
        for path in paths:
            name, rest = self.split(path)
            if not self.log(name).is_doomed:
                promise(not rest.startswith(NEVER_DELETED), "reached", f"{path} was deleted")
            for log in self.logs.values():
                log.pins.check_deletion(path)
                linked = path in log.reached and not log.is_doomed
                promise(not linked, "reached", f"{path} was deleted, and {log.name} links it")


class WatchedStore(WatchedBucket):
    """The same with one log, which is the whole store."""

    def split(self, path: str) -> tuple[str, str]:
        return "", path

    @property
    def manifest(self) -> Manifest:
        return self.log("").manifest

    @property
    def plan(self) -> Garbage | None:
        return self.log("").plan

    @property
    def records(self) -> LinkedRecords:
        return self.log("").records

    @property
    def left(self) -> set[str]:
        """Stored data that the manifest does not lead to."""
        return self.unreached("")

    def older_manifests(self, count: int, random: Random) -> list[bytes]:
        """Some versions of the manifest that were stored before."""
        newest = self._store._objects[MANIFEST_PATH]
        known = sorted(data for path, data in self._versions if path == MANIFEST_PATH)
        older = [data for data in known if data != newest]
        return random.sample(older, min(count, len(older)))

    def copied(self, changed: Mapping[str, bytes]) -> MemoryStore:
        """A copy that nobody watches, with these objects in it."""
        copy = MemoryStore("copy")
        copy._objects.update({**self._store._objects, **changed})
        return copy

    def check_nothing_lost(self, copy: MemoryStore) -> None:
        """All that the manifest leads to is in the copy, too."""
        lost = [path for path in self.log("").reached if path not in copy._objects]
        self.watch(lambda: promise(not lost, "reached", f"{lost} went by an older manifest"))
        self.raise_if_broken()

    def acknowledged(self, held: Cursor | Pin) -> None:
        """A cursor or a pin was given to its caller: it counts from here on."""
        self.watch(lambda: self.log("").acknowledged(held))
