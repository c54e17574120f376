"""The table of permissions is tried: each role gets what its row grants, and uses all of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pyarrow as pa
import pytest

import stratalog as sl
from docs.markdown_files import table_of
from objectlog.leftovers import litter
from objectlog.trees import LEAF, MadeLog, Shape
from objectlog.whole_log import SMALL_TREE, run
from objectlog.wrapped_stores import PassingStore
from stratalog.errors import Denied, Unknown
from stratalog.objectlog.branch.destroy_log import destroy
from stratalog.objectlog.bulk.commit import link_uploaded
from stratalog.objectlog.bulk.upload import BulkUpload
from stratalog.objectlog.check.rebuild_nodes import repair
from stratalog.objectlog.check.scrub_log import scrub
from stratalog.objectlog.collection.sweep_epoch import raise_epoch
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.cost.storage import measure_storage
from stratalog.objectlog.holds.pin import PinStore
from stratalog.objectlog.holds.upload_guard import UploadGuard, UploadGuardStore
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.pipeline.compact.apply_verdict import Judged, apply_verdict
from stratalog.pipeline.compact.key_index import (
    NO_ROWS,
    IndexNames,
    IndexPart,
    fetch_part,
    load_index,
    store_part,
)
from stratalog.pipeline.compact.key_query import Answer
from stratalog.pipeline.compact.key_state import read_key_state
from stratalog.pipeline.compact.key_verdict import Verdict
from stratalog.pipeline.jobs.logs import LogRef
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import MemoryStore
from stratalog.store.cas import Patience
from stratalog.store.doctor import examine
from stratalog.store.protocol import Blob, Head, Listed, Store

AT_ONCE = sl.CollectorOptions(interval_s=0.0)
SHAPE: Shape = (((LEAF, LEAF, LEAF), (LEAF, LEAF)), (LEAF, LEAF), LEAF, LEAF)
EVERYTHING = "everything"
RIGHTS = ("reads", "lists", "creates", "replaces", "deletes")


def granted(heading: str = "# Permissions") -> dict[str, dict[str, set[str]]]:
    """The rights of each role in a table: prefixes, or everything."""
    roles: dict[str, dict[str, set[str]]] = {}
    before: dict[str, set[str]] = {}
    for role, cells in table_of("permissions.md", heading).items():
        rights = {}
        for right, cell in zip(RIGHTS, cells, strict=True):
            if cell == "the same":
                rights[right] = before[right]
            else:
                rights[right] = set(re.findall(r"`(\w+/)`", cell))
                rights[right] |= {EVERYTHING} if cell == EVERYTHING else set()
        roles[role] = before = rights
    return roles


class Bucket(PassingStore):
    """A bucket that refuses what a role may not do, and notes what it does."""

    def __init__(self, inner: Store, rights: dict[str, set[str]]) -> None:
        super().__init__(inner)
        self._rights = rights
        self.used: dict[str, set[str]] = defaultdict(set)

    async def get(self, path: str) -> Blob:
        self._check("reads", path)
        return await super().get(path)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        self._check("reads", path)
        return await super().get_range(path, start, length)

    async def head(self, path: str) -> Head:
        self._check("reads", path)
        return await super().head(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self._check("creates", path)
        return await super().put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        self._check("replaces", path)
        return await super().put_if_match(path, data, etag)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        self._check("lists", prefix)
        async for row in super().list(prefix, after):
            yield row

    async def delete_many(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._check("deletes", path)
        await super().delete_many(paths)

    def _check(self, right: str, path: str) -> None:
        folder = path.partition("/")[0] + "/" if path else EVERYTHING
        if not self._rights[right] & {folder, EVERYTHING}:
            raise Denied(f"this role never {right} {path}", path=path)
        self.used[right].add(folder)


async def made_into(store: MemoryStore) -> None:
    """A log with a policy and a cursor."""
    await MadeLog(SHAPE, encoded=True).store(store)
    await sl.PolicyStore(store).set(sl.Policy(retain=sl.Retention(age_s=60.0)))


async def made() -> MemoryStore:
    """A log with all that can stand beside it: cursors, pins that end, a stage, leftovers."""
    store = MemoryStore()
    await MadeLog(SHAPE, encoded=True).store(store)
    await sl.CursorStore(store).create("keeper", 2)
    await PinStore(store).create("past", 1, 3, expires_us=1)
    await (await PinStore(store).create("released", 2, 4)).release()
    return store


async def with_leftovers(store: MemoryStore) -> str:
    """A collected log with leftovers; gives the incarnation of a stage."""
    await sl.collect(store, options=AT_ONCE)
    await PinStore(store).create("held", 4)
    await litter(store)
    stage = await UploadGuard.register(store)
    await (await UploadGuard.register(store)).release()
    return stage.incarnation


async def read(bucket: Bucket, _: MemoryStore) -> None:
    async with sl.LogReader.open(bucket) as reader:
        assert len([record async for record in reader.records()]) == 9


class LosesAnAnswer(PassingStore):
    """The first fragment is stored, and nobody hears of it."""

    lost = False

    async def put_if_absent(self, path: str, data: bytes) -> str:
        etag = await super().put_if_absent(path, data)
        if path.startswith("log/") and not self.lost:
            self.lost = True
            raise Unknown("no answer", path=path)
        return etag


async def write(bucket: Bucket, store: MemoryStore) -> None:
    bucket.inner = LosesAnAnswer(store)
    for _ in range(2):
        async with sl.LogWriter.open(bucket, options=SMALL_TREE) as log:
            for number in range(40):
                await log.append(b"%d" % number)


async def create(bucket: Bucket, store: MemoryStore) -> None:
    await store.delete_many([row.path async for row in store.list()])
    await sl.create_log(bucket)


async def hold_cursors(bucket: Bucket, _: MemoryStore) -> None:
    cursors = sl.CursorStore(bucket)
    cursor = await cursors.create("mine", 2)
    await (await cursor.move(5)).move(3)
    assert len(await cursors.list()) == 2


async def hold_pins(bucket: Bucket, _: MemoryStore) -> None:
    pins = PinStore(bucket)
    pin = await pins.create("mine", 2)
    await (await pin.renew(2**50)).release()
    assert [pin.name for pin in await pins.list()] == ["past"]


async def set_a_policy(bucket: Bucket, _: MemoryStore) -> None:
    policies = sl.PolicyStore(bucket)
    await policies.set(sl.Policy(live=sl.Live(key="body")))
    await policies.set(sl.Policy(retain=sl.Retention(bytes=1)))
    assert await policies.note_judged(await policies.load(), 3)
    await policies.remove()


async def stage_rows(bucket: Bucket, store: MemoryStore) -> None:
    bucket.inner = LosesAnAnswer(store)
    task = await BulkUpload.open(bucket)
    await task.upload(pa.array([b"x"], pa.binary()))
    await task.abandon()


async def link_rows(bucket: Bucket, store: MemoryStore) -> None:
    job = await UploadGuard.register(bucket)
    staged = []
    for number in range(70):
        task = await BulkUpload.open(store, job=job.incarnation)
        staged.append(await task.upload(pa.array([b"%d" % number], pa.binary())))
        if number == 0:
            await raise_epoch(store, 2**50, DEFAULT_RUNTIME, 10.0)
    await link_uploaded(bucket, staged)
    await link_uploaded(bucket, staged[:0])
    for _ in range(12):
        task = await BulkUpload.open(store, job=job.incarnation)
        await link_uploaded(bucket, [await task.upload(pa.array([b"x"], pa.binary()))])
    await job.release()
    await UploadGuardStore(bucket).remove([job.incarnation, *{each.incarnation for each in staged}])


async def seal(bucket: Bucket, _: MemoryStore) -> None:
    assert (await sl.Sealer(bucket).seal()).offset == 10


async def collect(bucket: Bucket, _: MemoryStore) -> None:
    assert (await sl.collect(bucket, options=AT_ONCE)).removed.snapshots
    await (await sl.CursorStore(bucket.inner).load("keeper")).move(7)
    assert (await sl.collect(bucket, options=AT_ONCE)).first_offset == 7


async def compact_some(bucket: Bucket, _: MemoryStore) -> None:
    options = sl.CompactOptions(interval_s=0.0)
    done = await sl.compact(bucket, sl.IndexSet(), up_to=7, options=options)
    assert done.removed.fragments


async def erase_some(bucket: Bucket, store: MemoryStore) -> None:
    pin = await PinStore(store).create("mine", 2)
    await store_part(store, NO_ROWS, 0, IndexNames(DEFAULT_RUNTIME), Patience(DEFAULT_RUNTIME, 1.0))
    options = sl.CompactOptions(interval_s=0.0)
    doomed = sl.IndexSet.of([2, 9])
    made = await sl.erase(bucket, doomed, despite_holders=True, options=options)
    assert made is not None
    assert not made.complete
    await pin.release()
    await sl.finish_erasures(bucket, options=options)


async def check_certificates(bucket: Bucket, store: MemoryStore) -> None:
    await sl.erase(store, sl.IndexSet.of([2, 3]), options=sl.CompactOptions(interval_s=0.0))
    (made,) = await sl.list_certificates(bucket)
    assert (await sl.verify_certificate(made, bucket)).holds


async def compact_by_key(bucket: Bucket, store: MemoryStore) -> None:
    """What the driver does and what its tasks do, without Spark."""
    options = sl.CompactOptions(interval_s=0.0)
    names, verdict = (
        IndexNames(DEFAULT_RUNTIME),
        Verdict(6, sl.IndexSet(range(1, 7)), sl.IndexSet()),
    )
    parts: list[IndexPart] = []
    for _ in range(2):
        state = await read_key_state(bucket, LogRef(), "rule", up_to=7)
        if state.index is not None:
            await fetch_part(bucket, state.index.parts[0])
        patience = Patience(DEFAULT_RUNTIME, 1.0)
        parts.append(await store_part(bucket, NO_ROWS, 0, names, patience))
        answer = Answer(6, verdict, 1, (parts[-1],), is_rewritten=True)
        await apply_verdict(bucket, Judged(state, answer), "rule", options=options)
    index, _ = await load_index(store)
    assert index is not None
    assert index.parts == (parts[-1],)


async def preview(bucket: Bucket, store: MemoryStore) -> None:
    await sl.Collector(store).compute()
    collector = sl.Collector(bucket)
    assert (await collector.preview()).records == 1
    assert (await collector.plan())[1] is sl.PlanState.LIVE


async def sweep_all(bucket: Bucket, store: MemoryStore) -> None:
    stage = await with_leftovers(store)
    assert (await sweep(bucket, revoke=[stage])).deleted.objects


async def sweep_nothing(bucket: Bucket, store: MemoryStore) -> None:
    stage = await with_leftovers(store)
    assert (await sweep(bucket, revoke=[stage], dry_run=True)).deleted.objects


async def scrub_all(bucket: Bucket, store: MemoryStore) -> None:
    await with_leftovers(store)
    assert (await scrub(bucket)).clean
    await store.delete_many([MANIFEST_PATH])
    assert [found.kind.value for found in (await scrub(bucket)).damages] == ["manifest-missing"]


async def scrub_and_repair(bucket: Bucket, store: MemoryStore) -> None:
    await with_leftovers(store)
    async with sl.LogReader.open(store) as reader:
        await store.delete_many([reader.manifest.snapshots[0].path])
    report = await scrub(bucket)
    assert (await repair(bucket, report)).repaired


async def verify_all(bucket: Bucket, store: MemoryStore) -> None:
    await with_leftovers(store)
    assert (await sl.verify(bucket)).proven
    await store.delete_many([MANIFEST_PATH])
    assert not (await sl.verify(bucket)).proven


async def measure(bucket: Bucket, store: MemoryStore) -> None:
    await with_leftovers(store)
    assert (await measure_storage(bucket)).amounts["unreferenced"].objects


async def destroy_all(bucket: Bucket, store: MemoryStore) -> None:
    await litter(store)
    await destroy(bucket)
    assert [row async for row in store.list()] == []


async def examine_the_store(bucket: Bucket, _: MemoryStore) -> None:
    assert (await examine(bucket, rounds=2)).held


# What they need is granted in two places at once; tests/objectlog has their operations.
OF_TWO_PLACES = (
    "source of a `fork` or a `copy",
    "the same, made by wal3, of a `fork",
    "target of a `fork` or a `copy",
    "source of a `backup",
    "place of a `backup",
    "source of a `restore`, `backups --check",
    "target of a `restore",
)
Role = Callable[[Bucket, MemoryStore], Awaitable[None]]
ROLES: dict[str, Role] = {
    "reader": read,
    "writer": write,
    "creating a log": create,
    "cursor holder": hold_cursors,
    "pin holder": hold_pins,
    "setting a policy": set_a_policy,
    "a task of a Spark sink": stage_rows,
    "the driver of a Spark sink": link_rows,
    "seal`, `migrate": seal,
    "collect": collect,
    "compact": compact_some,
    "erase": erase_some,
    "certificate verify": check_certificates,
    "compact --key": compact_by_key,
    "collect --dry-run": preview,
    "sweep": sweep_all,
    "sweep --dry-run": sweep_nothing,
    "scrub": scrub_all,
    "scrub --repair": scrub_and_repair,
    "verify": verify_all,
    "cost": measure,
    "destroy": destroy_all,
    "doctor": examine_the_store,
}


async def create_in_a_herd(bucket: Bucket, _: MemoryStore) -> None:
    async with sl.Herd.open(bucket) as herd:
        await herd.create("new")


async def write_to_a_herd(bucket: Bucket, _: MemoryStore) -> None:
    async with sl.Herd.open(bucket, server="another") as herd:
        await herd.log("ada").append(b"x")


async def read_a_herd(bucket: Bucket, _: MemoryStore) -> None:
    async with sl.Herd.open(bucket) as herd:
        assert [name async for name in herd.names()] == ["ada", "bob"]
        async with herd.log("ada").reader() as reader:
            assert len([record async for record in reader.records()]) == 3


async def roll_up_a_herd(bucket: Bucket, store: MemoryStore) -> None:
    async with sl.Herd.open(bucket, server="worker") as herd:
        for _ in range(2):
            found = await sl.roll_up(herd)
            assert len(found.dirty) == 2
            assert not found.troubles
        async with sl.Herd.open(store) as other:
            await (await other.log("bob").cursors()).create("compaction", 4)
        assert len((await sl.roll_up(herd)).dirty) == 1


async def drop_from_a_herd(bucket: Bucket, _: MemoryStore) -> None:
    async with sl.Herd.open(bucket) as herd:
        await herd.drop("bob")


HERD_ROLES: dict[str, Role] = {
    "a server that creates logs": create_in_a_herd,
    "a server that writes": write_to_a_herd,
    "whoever reads": read_a_herd,
    "roll-up": roll_up_a_herd,
    "drop": drop_from_a_herd,
}


def granted_in_a_herd() -> dict[str, dict[str, set[str]]]:
    """By the role without what is in brackets behind it."""
    roles = granted("## In a herd")
    return {role.partition(" (")[0].strip("`"): rights for role, rights in roles.items()}


def test_every_role_in_a_herd_is_tried() -> None:
    assert list(granted_in_a_herd()) == list(HERD_ROLES)


@pytest.mark.parametrize("role", HERD_ROLES)
def test_a_role_in_a_herd_needs_what_the_table_grants_and_nothing_else(role: str) -> None:
    rights = granted_in_a_herd()[role]

    async def main() -> None:
        store = MemoryStore()
        async with sl.Herd.open(store, server="api") as herd:
            for name in ("ada", "bob"):
                await (await herd.create(name)).append_many([b"one", b"two", b"three"])
        bucket = Bucket(store, rights)
        await HERD_ROLES[role](bucket, store)
        for right, folders in rights.items():
            assert folders <= bucket.used[right], f"it never {right} some of them"

    run(main())


def test_every_role_of_the_table_is_tried() -> None:
    assert [role for role in granted() if role not in OF_TWO_PLACES] == list(ROLES)


def test_a_backup_and_a_restoration_need_what_the_table_grants() -> None:
    """Each of them uses two places, with rights of their own."""
    roles = granted()

    async def main() -> None:
        log, kept, again = MemoryStore("log"), MemoryStore("kept"), MemoryStore("again")
        await made_into(log)
        source = Bucket(log, roles["source of a `backup"])
        place = Bucket(kept, roles["place of a `backup"])
        await sl.backup(source, place)
        await sl.backup(source, place)  # the second one reads the first
        origin = Bucket(kept, roles["source of a `restore`, `backups --check"])
        target = Bucket(again, roles["target of a `restore"])
        await sl.check_backup(origin)
        await sl.restore(origin, target)
        assert (await scrub(again)).clean
        for bucket, role in (
            (source, "source of a `backup"),
            (place, "place of a `backup"),
            (origin, "source of a `restore`, `backups --check"),
            (target, "target of a `restore"),
        ):
            for right, folders in roles[role].items():
                unused = folders - {EVERYTHING} - bucket.used[right]
                assert not unused, f"{role}: it never {right} {unused}"

    run(main())


@pytest.mark.parametrize("role", ROLES)
def test_a_role_needs_what_the_table_grants_and_nothing_else(role: str) -> None:
    rights = granted()[role]

    async def main() -> None:
        store = await made()
        bucket = Bucket(store, rights)
        await ROLES[role](bucket, store)
        for right, folders in rights.items():
            assert folders - {EVERYTHING} <= bucket.used[right], f"it never {right} some of them"

    run(main())
