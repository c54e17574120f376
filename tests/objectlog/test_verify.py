"""Verify: a good log is shown to be good, and what is wrong counts for the right promise."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

import stratalog as sl
from objectlog.whole_log import (
    SMALL_TREE,
    check_whole_log,
    collect_roots,
    replace_bytes,
    run,
    walk,
)
from objectlog.wrapped_stores import CountingStore, PassingStore
from soak.described import RUN, record, records
from stratalog.errors import NotFound
from stratalog.objectlog.branch.fork_log import fork
from stratalog.objectlog.check import numbering
from stratalog.objectlog.check.verify_log import VerifyReport
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, decode_manifest
from stratalog.store import MemoryStore
from stratalog.store.protocol import Blob


async def fill(url: str | sl.Store, *appends: Sequence[bytes]) -> None:
    """Each of these in a fragment of its own, below a small tree."""
    async with sl.LogWriter.open(url, create=True, options=SMALL_TREE) as log:
        for bodies in appends:
            await log.append_many(bodies)


def held(report: VerifyReport) -> dict[str, bool]:
    return {check.name: check.held for check in report.checks}


ALL_HELD = dict.fromkeys(("structure", "sums", "continuity", "self-description"), True)


def test_a_good_log_is_verified_on_every_store(store_url: str) -> None:
    async def scenario() -> None:
        soaked = [[record(1, number), record(2, number)] for number in range(10)]
        await fill(store_url, *soaked, [b"of another kind"])
        report = await sl.verify(store_url)
        assert report.proven
        assert held(report) == ALL_HELD
        assert (report.records, report.first_offset, report.limit_offset) == (21, 1, 22)
        assert (report.described_records, report.described_writers) == (20, 2)
        assert report.hashed == report.setsum
        assert report.snapshots > 0
        assert not report.damages
        assert not report.oddities

    run(scenario())


def test_an_empty_log_and_one_without_descriptions_are_verified() -> None:
    async def scenario() -> None:
        await sl.create_log("memory://verify-empty")
        empty = await sl.verify("memory://verify-empty")
        assert (empty.proven, empty.records) == (True, 0)
        await fill("memory://verify-plain", [b"one"], [b"two"])
        plain = await sl.verify("memory://verify-plain")
        assert (plain.proven, plain.described_records) == (True, 0)
        with pytest.raises(NotFound):
            await sl.verify("memory://verify-nothing")

    run(scenario())


def test_it_writes_nothing_and_reads_every_fragment_once() -> None:
    async def scenario() -> None:
        store = CountingStore(MemoryStore())
        await fill(store, *[[b"%d" % number] for number in range(20)])
        store.reset()
        await sl.verify(store)
        assert store.writes == 0
        fragments = [path for path in store.paths_read if path.startswith("log/")]
        assert len(fragments) == len(set(fragments)) == 20

    run(scenario())


def test_progress_ends_with_all_records() -> None:
    async def scenario() -> list[tuple[int, int]]:
        await fill("memory://verify-progress", *[[b"a", b"b"] for _ in range(8)])
        told: list[tuple[int, int]] = []
        await sl.verify("memory://verify-progress", on_progress=lambda *at: told.append(at))
        return told

    told = run(scenario())
    assert told == sorted(told)
    assert told[-1] == (16, 16)


def test_after_a_collection_the_rest_adds_up_and_numbers_may_begin_anywhere() -> None:
    async def scenario() -> None:
        url = "memory://verify-collected"
        await fill(url, *[records(1, range(5 * each, 5 * each + 5)) for each in range(9)])
        first = await collect_roots(url, 1)
        assert first > 1
        report = await sl.verify(url)
        assert report.proven, report
        assert report.hashed != report.setsum
        assert report.first_offset == first

    run(scenario())


def test_a_fork_is_verified_with_what_it_shares() -> None:
    async def scenario() -> None:
        await fill("memory://verify-source", *[[record(1, number)] for number in range(10)])
        await fork("memory://verify-source", "memory://verify-fork", at=8)
        report = await sl.verify("memory://verify-fork")
        assert report.proven, report
        assert report.described_records == 7

    run(scenario())


def test_a_log_that_is_written_meanwhile_is_verified_up_to_where_it_ended() -> None:
    class Busy(PassingStore):
        """Somebody appends with each read of a fragment."""

        async def get(self, path: str) -> Blob:
            if path.startswith("log/"):
                options = sl.WriterOptions(on_fenced="reopen")
                async with sl.LogWriter.open(self.inner, options=options) as log:
                    await log.append(b"meanwhile")
            return await super().get(path)

    async def scenario() -> None:
        store = MemoryStore()
        await fill(store, *[[b"%d" % number] for number in range(6)])
        report = await sl.verify(Busy(store))
        assert report.proven, report
        assert report.records >= 6
        assert report.hashed == report.setsum
        assert len(await check_whole_log(store)) > report.records

    run(scenario())


def test_a_log_that_is_collected_meanwhile_is_no_damage_and_has_no_total() -> None:
    class Collecting(PassingStore):
        """All but the newest is collected when the first fragment is read."""

        done = False

        async def get(self, path: str) -> Blob:
            if path.startswith("log/") and not self.done:
                self.done = True
                async with sl.LogReader.open(self.inner) as reader:
                    entries = len(reader.manifest.entries)
                await collect_roots(self.inner, entries - 1)
            return await super().get(path)

    async def scenario() -> None:
        store = MemoryStore()
        await fill(store, *[[record(1, number)] for number in range(9)])
        report = await sl.verify(Collecting(store))
        assert report.proven, report
        assert report.hashed is None

    run(scenario())


# What is wrong


@pytest.mark.parametrize(
    ("appends", "kinds"),
    [
        ([[0, 1], [3, 4]], ["missing"]),
        ([[0, 1, 1, 2]], ["twice"]),
        ([[0, 1], [0, 1]], ["twice"]),
        ([[0, 2, 1, 3]], ["late"]),
        ([[0, 4], [1, 2], [5]], ["late", "missing"]),
        ([[1, 2]], ["missing"]),
    ],
)
def test_numbers_that_do_not_follow_each_other_break_the_self_description(
    appends: list[list[int]], kinds: list[str]
) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await fill(store, *[[record(1, number) for number in each] for each in appends])
        report = await sl.verify(store)
        assert held(report) == ALL_HELD | {"self-description": False}
        assert sorted(each.kind for each in report.oddities) == kinds
        assert {(each.run, each.writer) for each in report.oddities} == {(RUN, 1)}

    run(scenario())


def test_an_oddity_says_which_numbers_and_where() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await fill(store, records(1, range(3)), records(1, range(7, 9)), records(1, range(4, 5)))
        report = await sl.verify(store)
        told = [(each.kind, each.first, each.count, each.offset) for each in report.oddities]
        assert told == [("missing", 3, 1, 4), ("missing", 5, 2, 4), ("late", 4, 1, 6)]
        assert all(each.meaning for each in report.oddities)
        assert report.to_dict()["proven"] is False
        assert msgspec.json.encode(report.to_dict())

    run(scenario())


def test_a_broken_description_is_told() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await fill(store, [record(1, 0), record(1, 1)[:-1] + b"?", b"\x93SOAK\r\n\x01"])
        report = await sl.verify(store)
        assert [(each.kind, each.offset) for each in report.oddities] == [
            ("broken", 2),
            ("broken", 3),
        ]
        assert not report.proven

    run(scenario())


async def a_fragment(store: sl.Store) -> sl.Fragment:
    return [each async for each in walk(store) if isinstance(each, sl.Fragment)][2]


async def lose_a_fragment(store: sl.Store) -> None:
    await store.delete_many([(await a_fragment(store)).path])


async def exchange_two_fragments(store: sl.Store) -> None:
    paths = [each.path async for each in walk(store) if isinstance(each, sl.Fragment)][:2]
    first, second = [(await store.get(path)).data for path in paths]
    await replace_bytes(store, paths[0], second)
    await replace_bytes(store, paths[1], first)


async def change_the_sum(store: sl.Store) -> None:
    blob = await store.get(MANIFEST_PATH)
    manifest = decode_manifest(blob.data)
    other = msgspec.structs.replace(manifest, setsum=manifest.setsum + sl.Setsum.of(b"more"))
    await store.put_if_match(MANIFEST_PATH, other.to_json(), blob.etag)


@pytest.mark.parametrize(
    ("damage", "broken", "kind"),
    [
        (lose_a_fragment, "structure", "fragment-missing"),
        (exchange_two_fragments, "continuity", "fragment-offsets"),
        (change_the_sum, "sums", "manifest-sum"),
    ],
)
def test_damage_breaks_the_promise_that_it_belongs_to(
    damage: object, broken: str, kind: str
) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await fill(store, *[[b"%03d" % number] for number in range(9)])
        assert callable(damage)
        await damage(store)
        report = await sl.verify(store)
        assert not held(report)[broken], report
        assert kind in {each.kind.value for each in report.damages}
        assert not report.proven

    run(scenario())


def test_what_was_not_shown_is_not_claimed() -> None:
    """The evidence of a broken promise is what was found."""

    async def scenario() -> None:
        store = MemoryStore()
        await fill(store, *[[b"%03d" % number] for number in range(5)])
        await exchange_two_fragments(store)
        report = await sl.verify(store)
        assert held(report) == ALL_HELD | {"sums": False, "continuity": False}
        evidence = {check.name: check.evidence for check in report.checks}
        assert evidence["sums"] == evidence["continuity"]
        assert evidence["sums"].startswith("found 2 fragment-offsets")
        await lose_a_fragment(store)
        report = await sl.verify(store)
        evidence = {check.name: check.evidence for check in report.checks}
        assert evidence["structure"] == "found fragment-missing"
        assert "fragment-missing" in evidence["sums"]
        assert "fragment-missing" in evidence["continuity"]

    run(scenario())


def test_oddities_are_the_evidence_of_a_broken_description() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await fill(store, records(1, range(3)), records(1, range(7, 9)), records(1, range(4, 5)))
        assert (await sl.verify(store)).checks[-1].evidence == "found 2 missing, late"

    run(scenario())


def test_too_many_gaps_to_tell_late_from_twice_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbering, "MISSING_RANGES_MAX", 2)

    async def scenario() -> None:
        store = MemoryStore()
        await fill(store, [record(1, number) for number in (1, 3, 5, 7, 0, 4, 1)])
        report = await sl.verify(store)
        assert not report.proven
        told = [(each.kind, each.first) for each in report.oddities if each.kind != "missing"]
        assert told == [("late", 0), ("late-or-twice", 4), ("twice", 1)]
        (unclear,) = [each for each in report.oddities if each.kind == "late-or-twice"]
        assert "too many gaps" in unclear.meaning

    run(scenario())


def test_a_manifest_that_cannot_be_read_is_reported_and_not_raised() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await fill(store, [b"one"])
        await replace_bytes(store, MANIFEST_PATH, b"{}")
        report = await sl.verify(store)
        assert not report.proven
        assert report.setsum is None
        assert report.damages[0].kind.value == "manifest-unreadable"

    run(scenario())


def test_large_fragments_are_examined_on_threads_with_the_same_result() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        large = [record(1, number, length=2000) for number in range(100)]
        await fill(store, large, [record(1, number, length=2000) for number in range(100, 200)])
        report = await sl.verify(store)
        assert report.proven
        assert report.described_records == 200

    asyncio.run(scenario())
