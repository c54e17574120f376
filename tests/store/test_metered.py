"""What was asked of a store, and how long it took."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stratalog as sl
from bench.metered_store import MeteredStore, StoreStats
from stratalog.errors import Exists
from stratalog.meter import Meter, bucket_of, middle_s
from stratalog.objectlog.branch.fork_log import fork
from stratalog.store import MemoryStore
from stratalog.store.counted import CountedStore, Usage


def test_requests_and_bytes_are_counted_by_operation() -> None:
    async def scenario() -> StoreStats:
        store = MeteredStore(MemoryStore())
        assert store.stats().requests == 0
        etag = await store.put_if_absent("a", b"12345")
        with pytest.raises(Exists):
            await store.put_if_absent("a", b"12345")
        await store.put_if_match("a", b"1234567", etag)
        await store.get("a")
        await store.get_range("a", 1, 2)
        await store.head("a")
        assert [row.path async for row in store.list()] == ["a"]
        await store.delete_many(["a"])
        assert [row async for row in store.list()] == []
        return store.stats()

    stats = asyncio.run(scenario())
    counts = {name: (each.count, each.failed) for name, each in stats.operations.items()}
    assert counts == {
        "get": (1, 0),
        "get_range": (1, 0),
        "head": (1, 0),
        "put_if_absent": (2, 1),
        "put_if_match": (1, 0),
        "list": (2, 0),
        "delete_many": (1, 0),
    }
    assert (stats.requests, stats.bytes_read, stats.bytes_written) == (9, 9, 12)
    assert stats.usage == Usage(
        class_a_requests=5,
        class_b_requests=3,
        free_requests=1,
        bytes_written=17,
        bytes_read=9,
    )
    assert msgspec.json.decode(msgspec.json.encode(stats), type=StoreStats) == stats


def test_a_listing_is_one_request_for_each_page_and_a_deletion_for_each_thousand() -> None:
    async def scenario() -> Usage:
        inner = MemoryStore()
        for number in range(2500):
            await inner.put_if_absent(f"{number:04}", b"")
        store = CountedStore(inner)
        paths = [row.path async for row in store.list()]
        assert len(paths) == 2500
        await store.delete_many(paths)
        await store.delete_many([])
        return store.usage

    assert asyncio.run(scenario()) == Usage(class_a_requests=3, free_requests=3)


def test_a_log_and_the_logs_that_it_was_forked_from_are_counted_together() -> None:
    async def scenario() -> None:
        async with sl.LogWriter.open("memory://counted-source", create=True) as log:
            for number in range(5):
                await log.append(b"%d" % number)
        await fork("memory://counted-source", "memory://counted-fork")
        async with sl.LogReader.open("memory://counted-fork") as reader:
            assert len([record async for record in reader.records()]) == 5
            assert reader.stats["class_b_requests"] == 6

    asyncio.run(scenario())


def test_usages_add_up() -> None:
    assert Usage(1, 2, 3, 4, 5) + Usage(10, 20, 30, 40, 50) == Usage(11, 22, 33, 44, 55)


@given(st.floats(min_value=0, max_value=100))
def test_a_bucket_holds_its_latency_within_a_fifth(elapsed_s: float) -> None:
    assert abs(middle_s(bucket_of(elapsed_s)) - elapsed_s) <= 0.2 * elapsed_s + 1e-6


def test_percentiles_follow_the_distribution() -> None:
    meter = Meter()
    for index in range(1000):
        meter.add(0.001 if index < 980 else 0.1, 0, failed=False)
    stats = meter.timing()
    assert stats.p50_s == pytest.approx(0.001, rel=0.2)
    assert stats.p99_s == pytest.approx(0.1, rel=0.2)
    assert (stats.min_s, stats.max_s, stats.count) == (0.001, 0.1, 1000)
