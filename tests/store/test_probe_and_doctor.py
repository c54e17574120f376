"""A store that breaks its promises is found out, and a good one is not accused."""

from __future__ import annotations

import asyncio
import uuid
from typing import ClassVar, cast

import pytest

from bench.metered_store import MeteredStore
from store.broken_stores import (
    ChangesEtags,
    CreatesOnMatch,
    DamagesLargeObjects,
    HeadHasOtherEtag,
    IgnoresIfAbsent,
    IgnoresIfMatch,
    ListsByDirectory,
    ListsLate,
    NeverDeletes,
    RangesAreOffByOne,
    ReadsStale,
    RefusesCorrectMatch,
)
from stratalog.errors import Conflict, Denied, Exists, Invalid, Unavailable, Unknown
from stratalog.runtime import Runtime
from stratalog.store import MemoryStore, PrefixedStore, Store, open_store
from stratalog.store.doctor import Report, examine
from stratalog.store.probes import FALSE_REFUSALS_MAX, probe
from stratalog.testing import Faults, FaultyStore, Simulation, simulate


def name() -> str:
    return uuid.uuid4().hex


def test_a_good_store_passes_its_probes_and_nothing_is_left(store_url: str) -> None:
    async def scenario() -> None:
        store = open_store(store_url)
        await probe(store, Runtime())
        assert [row async for row in store.list()] == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (IgnoresIfAbsent, "create an object twice"),
        (IgnoresIfMatch, "the etag has changed"),
        (RefusesCorrectMatch, "where the etag matches"),
        (ChangesEtags, "the etag that a read has"),
        (ReadsStale, "what was written last"),
    ],
)
def test_probes_refuse_a_store_that_breaks_a_promise(kind: type[MemoryStore], promise: str) -> None:
    store = kind(name())
    with pytest.raises(Invalid, match=promise) as caught:
        asyncio.run(probe(store, Runtime()))
    assert "stratalog doctor" in caught.value.hint
    with pytest.raises(Invalid, match=promise):
        asyncio.run(probe(store, Runtime()))
    assert not store._objects, "a probe cleans up also when it fails"


def test_a_store_is_probed_once_per_runtime_whatever_the_prefix() -> None:
    async def scenario() -> None:
        metered = MeteredStore(MemoryStore(name()))
        runtime = Runtime()
        await probe(PrefixedStore(metered, "a"), runtime)
        first = metered.stats().requests
        assert 5 <= first <= 8
        await probe(PrefixedStore(metered, "b"), runtime)
        await probe(metered, runtime)
        assert metered.stats().requests == first
        await probe(metered, Runtime())
        assert metered.stats().requests == 2 * first

    asyncio.run(scenario())


def test_buckets_of_the_same_name_on_two_servers_are_two_stores() -> None:
    async def scenario() -> None:
        runtime = Runtime()
        here, there = MeteredStore(MemoryStore("same")), MeteredStore(MemoryStore("same"))
        assert here.url == there.url
        for store in (here, there, here):
            await probe(PrefixedStore(store, "a"), runtime)
        assert here.stats().requests == there.stats().requests > 0

    asyncio.run(scenario())


def test_a_store_that_allows_no_weak_reference_is_probed_each_time() -> None:
    class Slotted:
        """Passes everything on, and has room for nothing else."""

        __slots__ = ("_store",)

        def __init__(self, store: Store) -> None:
            self._store = store

        def __getattr__(self, attribute: str) -> object:
            return getattr(self._store, attribute)

    async def scenario() -> None:
        metered = MeteredStore(MemoryStore(name()))
        slotted, runtime = cast("Store", Slotted(metered)), Runtime()
        await probe(slotted, runtime)
        first = metered.stats().requests
        await probe(slotted, runtime)
        assert metered.stats().requests == 2 * first

    asyncio.run(scenario())


def test_a_probe_may_lack_the_permission_to_delete() -> None:
    class NoDelete(MemoryStore):
        async def delete_many(self, paths: object) -> None:
            raise Denied("no")

    asyncio.run(probe(NoDelete(name()), Runtime()))


def test_a_lost_answer_is_no_accusation() -> None:
    class LosesAnswers(MemoryStore):
        lost = 0

        async def put_if_absent(self, path: str, data: bytes) -> str:
            etag = await super().put_if_absent(path, data)
            if self.lost < 2:
                self.lost += 1
                raise Unknown("lost")
            if self.lost == 2:
                self.lost += 1
                raise Exists("an echo: the put was delivered twice")
            return etag

    asyncio.run(probe(LosesAnswers(name()), Runtime()))


@pytest.mark.parametrize("refused", ["put_if_absent", "put_if_match"])
@pytest.mark.parametrize("times", [1, FALSE_REFUSALS_MAX - 1, FALSE_REFUSALS_MAX])
def test_a_false_refusal_now_and_then_is_no_accusation_but_one_every_time_is(
    refused: str, times: int
) -> None:
    class RefusesFalsely(MemoryStore):
        left = times
        names: ClassVar[set[str]] = set()

        async def put_if_absent(self, path: str, data: bytes) -> str:
            self.names.add(path)
            if refused == "put_if_absent" and self.left and path not in self._objects:
                self.left -= 1
                raise Exists("409")
            return await super().put_if_absent(path, data)

        async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
            if refused == "put_if_match" and self.left and (await self.head(path)).etag == etag:
                self.left -= 1
                raise Conflict("409")
            return await super().put_if_match(path, data, etag)

    store, runtime = RefusesFalsely(name()), Runtime()
    if times < FALSE_REFUSALS_MAX:
        asyncio.run(probe(store, runtime))
    else:
        with pytest.raises(Invalid, match="would lose records"):
            asyncio.run(probe(store, runtime))
    assert store.left == 0
    assert len(store.names) == min(times + 1, FALSE_REFUSALS_MAX), "each time under another name"
    assert not store._objects
    asyncio.run(probe(store, runtime))


@pytest.mark.parametrize("kind", [IgnoresIfAbsent, IgnoresIfMatch])
def test_a_put_that_should_have_been_refused_is_not_tried_again(kind: type[MemoryStore]) -> None:
    metered = MeteredStore(kind(name()))
    with pytest.raises(Invalid):
        asyncio.run(probe(metered, Runtime()))
    assert metered.stats().requests <= 8


def test_a_log_is_created_on_a_store_with_false_refusals() -> None:
    async def main(simulation: Simulation) -> None:
        faulty = FaultyStore(
            MemoryStore(name()), Faults(false_refusal=0.1), random=simulation.random
        )
        await probe(faulty, simulation.runtime)

    for seed in range(50):
        simulate(main, seed=seed)


def test_a_store_that_does_not_answer_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.store.probes.PROBE_TIMEOUT_S", 0.0)

    class Silent(MemoryStore):
        async def put_if_absent(self, path: str, data: bytes) -> str:
            raise Unknown("no answer")

    with pytest.raises(Unavailable):
        asyncio.run(probe(Silent(name()), Runtime()))


def test_doctor_finds_a_good_store_good_and_leaves_nothing(store_url: str) -> None:
    async def scenario() -> None:
        store = open_store(store_url)
        steps: list[tuple[str, int, int]] = []
        report = await examine(
            store, writers=2, rounds=3, progress=lambda *step: steps.append(step)
        )
        assert report.held, report
        assert {check.status for check in report.checks} == {"held"}
        assert {each.unit for each in report.measurements} == {"1/s", "ms"}
        assert all(each.value > 0 and each.samples > 0 for each in report.measurements)
        assert [done for _, done, _ in steps] == list(range(len(report.checks) + 2))
        assert [row async for row in store.list()] == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        (IgnoresIfAbsent, {"create-race"}),
        (IgnoresIfMatch, {"lost-update", "stale-match"}),
        (CreatesOnMatch, {"match-missing"}),
        (ChangesEtags, {"etag", "lost-update"}),
        (HeadHasOtherEtag, {"etag"}),
        (ReadsStale, {"read-after-write"}),
        (ListsLate, {"list-after-put"}),
        (ListsByDirectory, {"list-order"}),
        (NeverDeletes, {"delete"}),
        (RangesAreOffByOne, {"range"}),
        (DamagesLargeObjects, {"large-object"}),
    ],
)
def test_doctor_names_the_promise_that_is_broken(
    kind: type[MemoryStore], broken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.store.doctor.CHECK_S_MAX", 0.5)
    report = asyncio.run(examine(kind(name()), writers=3, rounds=5))
    assert not report.held
    found = {check.name for check in report.checks if check.status == "broken"}
    assert broken <= found, report
    for check in report.checks:
        assert check.detail
        assert check.what_it_means


def test_doctor_says_what_it_could_not_check() -> None:
    class ReadOnly(MemoryStore):
        async def put_if_absent(self, path: str, data: bytes) -> str:
            raise Denied("read only")

    report = asyncio.run(examine(ReadOnly(name())))
    assert not report.held
    assert {check.status for check in report.checks} == {"not-checked"}
    assert report.measurements == ()


def test_being_unable_to_delete_is_no_danger() -> None:
    class NoDelete(MemoryStore):
        async def delete_many(self, paths: object) -> None:
            raise Denied("no")

    report: Report = asyncio.run(examine(NoDelete(name()), rounds=2))
    assert report.held
    assert {c.name for c in report.checks if c.status == "not-checked"} == {"delete"}
