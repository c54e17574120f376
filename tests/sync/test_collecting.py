"""Looking after a log without an event loop, also through a writer that appends meanwhile."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import stratalog as sl
from stratalog import ScrubOptions, errors, sync
from stratalog.indexset import IndexSet
from stratalog.objectlog.stored.names import UploadNames
from stratalog.runtime import Runtime
from stratalog.store import MemoryStore

AT_ONCE = sl.CollectorOptions(interval_s=0.0)


def filled(url: str | sl.Store, fragments: int) -> None:
    """A log of one record a fragment, and a cursor that needs only the last."""
    with sync.LogWriter.open(url, create=True) as log:
        for number in range(fragments):
            log.append(b"%d" % number)
    sync.CursorStore(url).create("keeper", fragments)


def test_what_lies_before_the_cursor_goes(store_url: str) -> None:
    filled(store_url, 5)
    seen: list[sl.Removed] = []
    collected = sync.collect(store_url, on_progress=seen.append, options=AT_ONCE)
    assert (collected.first_offset, collected.records, collected.fragments) == (5, 4, 4)
    assert seen[-1] == collected.removed
    with sync.LogReader.open(store_url) as reader:
        assert [record.body for record in reader.records(5)] == [b"4"]
        with pytest.raises(errors.Trimmed):
            next(reader.records(1))


def test_each_phase_can_be_called_on_its_own() -> None:
    store = MemoryStore()
    filled(store, 5)
    collector = sync.Collector(store, writer="nightly", options=AT_ONCE)
    assert collector.preview().records == 4
    plan = collector.compute(3)
    assert plan is not None
    assert (plan.writer, plan.records) == ("nightly", 2)
    assert collector.plan() == (plan, sl.PlanState.LIVE)
    collector.cancel()
    assert collector.plan() == (None, sl.PlanState.EMPTY)
    collector.compute()
    assert collector.publish().first_offset == 5
    assert collector.delete().fragments == 4
    assert collector.collect().records == 0


def test_a_blocking_writer_publishes_without_losing_a_put(store_url: str) -> None:
    filled(store_url, 5)
    with sync.LogWriter.open(store_url) as log:
        log.append(b"5")
        sync.collect(store_url, log_writer=log, options=AT_ONCE)
        assert log.manifest.first_offset == 5
        assert log.append(b"6").offset == 7
        assert (log.stats["rebases"], log.stats["manifest_conflicts"]) == (0, 0)


def test_a_blocking_writer_publishes_a_compaction(store_url: str) -> None:
    filled(store_url, 5)
    options = sl.CompactOptions(interval_s=0.0)
    with sync.LogWriter.open(store_url) as log:
        done = sync.compact(store_url, IndexSet.of([3]), up_to=5, log_writer=log, options=options)
        assert done.records == 3
        assert log.manifest.compacted is not None
        assert log.append(b"5").offset == 6
        assert (log.stats["rebases"], log.stats["manifest_conflicts"]) == (0, 0)


def test_appends_from_other_threads_go_on_meanwhile() -> None:
    store = MemoryStore()
    filled(store, 20)
    with sync.LogWriter.open(store) as log, ThreadPoolExecutor(4) as pool:
        appends = [pool.submit(log.append, b"more") for _ in range(40)]
        collector = sync.Collector(store, log_writer=log, options=AT_ONCE)
        assert collector.collect().first_offset == 20
        assert {each.result().offset for each in appends} == set(range(21, 61))


def test_what_was_left_is_swept_and_the_rest_is_examined_in_other_processes(tmp_path: Path) -> None:
    url = str(tmp_path / "log")
    filled(url, 5)
    left = UploadNames(Runtime()).fragment(99)
    asyncio.run(sl.open_store(url).put_if_absent(left, b"left"))
    assert sync.sweep(url).ahead.objects == 1
    assert sync.sweep(url, older_manifest=True).deleted.objects == 1
    report = sync.scrub(url, options=ScrubOptions(processes=1))
    assert (report.clean, report.records) == (True, 5)
    assert sync.repair(url, report).complete
    examined: list[tuple[int, int]] = []
    verified = sync.verify(url, on_progress=lambda *step: examined.append(step))
    assert (verified.proven, verified.records) == (True, 5)
    assert examined[-1] == (5, 5)
    assert sync.destroy(url).deleted.objects > 5
    with pytest.raises(errors.NotFound):
        sync.LogReader.open(url)


def test_a_writer_of_another_kind_is_refused_with_what_to_open() -> None:
    store = MemoryStore()
    filled(store, 2)
    with pytest.raises(errors.Invalid, match=r"writer of stratalog\.sync") as caught:
        sync.collect(store, log_writer=object())  # type: ignore[arg-type]
    assert "sync.LogWriter.open" in caught.value.hint
