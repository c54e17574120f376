"""The blocking twin does what the async classes do, from any number of threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import chain
from pathlib import Path

import pytest

import stratalog as sl
from stratalog import errors, sync
from stratalog.blocking.background_loop import LoopThread, loop_thread
from stratalog.store import MemoryStore

WAIT_S = 30


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "log")


@pytest.fixture
def log(url: str) -> Iterator[sync.LogWriter]:
    with sync.LogWriter.open(url, create=True) as log:
        yield log


def tasks_of(thread: LoopThread) -> set[asyncio.Task[object]]:
    """What runs in the loop's thread, once everything that is due has run."""

    async def others() -> set[asyncio.Task[object]]:
        for _ in range(10):
            await asyncio.sleep(0)
        return asyncio.all_tasks() - {asyncio.current_task()}

    return thread.run(others)


class Gate(MemoryStore):
    """A store whose puts of fragments wait until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Event()
        self.open = threading.Event()
        self.open.set()

    async def put_if_absent(self, path: str, data: bytes) -> str:
        while path.startswith("log/") and not self.open.is_set():
            self.waiting.set()
            await asyncio.sleep(0.001)
        return await super().put_if_absent(path, data)


def test_what_is_written_is_read(store_url: str) -> None:
    sync.create_log(store_url)
    with pytest.raises(errors.Exists):
        sync.create_log(store_url)
    with sync.LogWriter.open(store_url) as log:
        assert log.append(b"one").offset == 1
        assert log.append_many([b"two", b"three"], expected_offset=2).limit == 4
        futures = [log.submit(b"%d" % number) for number in range(4, 10)]
        log.drain()
        log.flush()
        assert [future.result().offset for future in futures] == [4, 5, 6, 7, 8, 9]
        assert log.tail == 10 == log.manifest.tail.offset
        assert log.stats["records"] == 9
    with sync.LogReader.open(store_url) as reader:
        assert (reader.first_offset, reader.tail) == (1, 10)
        assert reader.to_arrow(from_offset=1).column("offset").to_pylist() == list(range(1, 10))
        assert [record.body for record in reader.records(2, 4)] == [b"two", b"three"]
        fragments = reader.scan(from_offset=1, limits=sl.Limits(max_files=1))
        assert reader.fetch(fragments[0]).column(0)[0].as_py() == 1
        assert sum(batch.num_rows for batch in reader.batches()) == 9
        assert list(reader.follow(10, idle_timeout_s=0.0)) == []


def test_cursors_are_twins_too(store_url: str) -> None:
    sync.create_log(store_url)
    with sync.LogWriter.open(store_url) as log:
        log.append_many([b"%d" % number for number in range(30)])
    cursors = sync.CursorStore(store_url, writer="me")
    cursor = cursors.create("compaction", 1)
    assert isinstance(cursor, sync.Cursor)
    moved = cursor.move(20)
    assert (moved.name, moved.offset, moved.writer) == ("compaction", 20, "me")
    with pytest.raises(errors.Conflict):
        cursor.move(30)
    assert [each.position for each in cursors.list()] == [cursors.load("compaction").position]
    moved.delete()
    assert cursors.list() == []
    assert repr(moved) == "sync.Cursor('compaction', offset=20)"


def test_pins_are_twins_too(store_url: str) -> None:
    with sync.LogWriter.open(store_url, create=True) as log:
        for number in range(1, 6):
            log.append(b"%d" % number)
    pins = sync.PinStore(store_url, owner="me")
    pin = pins.create("run_7", 2, 4, note="epoch 1", expires_us=1)
    assert isinstance(pin, sync.Pin)
    assert (pin.name, pin.from_offset, pin.to_offset) == ("run_7", 2, 4)
    assert (pin.owner, pin.note, pin.expires_us) == ("me", "epoch 1", 1)
    assert len(pin.entries) == 2
    assert pin.fragment_bytes == sum(entry.num_bytes for entry in pin.entries)
    assert pin.created_us > 0
    assert (pin.window.from_offset, pin.window.to_offset) == (2, 4)
    with pytest.raises(errors.Exists):
        pins.create("run_7")
    renewed = pin.renew(None)
    assert isinstance(renewed, sync.Pin)
    assert renewed.expires_us is None
    with pytest.raises(errors.Conflict):
        pin.renew(2)
    assert repr(pins.load("run_7")) == "sync.Pin('run_7', 2 to 4)"
    with sync.LogReader.open(store_url, pin="run_7") as reader:
        assert [record.body for record in reader.records(2, 4)] == [b"2", b"3"]
    assert [each.name for each in pins.list()] == ["run_7"]
    renewed.release()
    assert pins.list() == []
    assert [each.name for each in pins.list_all()] == ["run_7"]
    with pytest.raises(errors.NotFound):
        pins.load("run_7")
    held, (released,) = pins.release_expired()
    assert held == []
    pins.clear(released)
    assert pins.list_all() == []
    pins.retire("never")
    with pytest.raises(errors.Exists):
        pins.create("never", reuse=False)


def test_many_threads_use_one_writer_at_once(log: sync.LogWriter, url: str) -> None:
    def append(worker: int) -> list[int]:
        return [log.append(b"%d-%d" % (worker, number)).offset for number in range(20)]

    with ThreadPoolExecutor(16) as pool:
        offsets = list(pool.map(append, range(16)))
    assert all(each == sorted(each) for each in offsets)
    assert sorted(chain(*offsets)) == list(range(1, 321))
    with sync.LogReader.open(url) as reader:
        bodies = {record.body for record in reader.records()}
    assert len(bodies) == 320


def test_submitted_records_keep_the_order_of_the_calls(log: sync.LogWriter) -> None:
    futures = [log.submit(b"%d" % number) for number in range(500)]
    assert all(isinstance(future, Future) for future in futures)
    log.flush()
    assert [future.result().offset for future in futures] == list(range(1, 501))


def test_what_the_call_itself_raises_is_raised_by_submit() -> None:
    store = Gate()
    options = sl.WriterOptions(queue_records_max=1)
    with sync.LogWriter.open(store, create=True, options=options) as log:
        store.open.clear()
        first = log.submit(b"one")
        assert store.waiting.wait(WAIT_S)
        log.submit(b"two")
        with pytest.raises(errors.Full):
            log.submit(b"three")
        with pytest.raises(errors.Invalid):
            log.submit("text")  # type: ignore[arg-type]
        store.open.set()
        assert first.result(WAIT_S).offset == 1


def test_a_cancelled_future_does_not_cancel_its_append() -> None:
    store = Gate()
    with sync.LogWriter.open(store, create=True) as log:
        store.open.clear()
        future = log.submit(b"one")
        assert future.cancel()
        store.open.set()
        log.flush()
        assert log.tail == 2


def test_an_interrupted_wait_is_a_cancelled_caller_and_the_append_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Gate()
    with sync.LogWriter.open(store, create=True) as log:
        store.open.clear()

        def interrupt(future: Future[object], timeout: float | None = None) -> object:
            assert store.waiting.wait(WAIT_S)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Future, "result", interrupt)
            with pytest.raises(KeyboardInterrupt):
                log.append(b"one")
        store.open.set()
        assert log.append(b"two").offset == 2


def test_closing_is_idempotent_and_final(url: str) -> None:
    log = sync.LogWriter.open(url, create=True)
    reader = sync.LogReader.open(url)
    for _ in range(3):
        log.close()
        reader.close()
    with pytest.raises(errors.Closed):
        log.append(b"one")
    with pytest.raises(errors.Closed):
        reader.refresh()


def test_a_missing_log_is_reported_by_open(url: str) -> None:
    with pytest.raises(errors.NotFound):
        sync.LogReader.open(url)
    with pytest.raises(errors.NotFound):
        sync.LogWriter.open(url)


@pytest.fixture
def long_log(url: str) -> str:
    with sync.LogWriter.open(url, create=True) as log:
        for number in range(20):
            log.append(b"%d" % number)
    return url


def test_an_iterator_that_is_closed_half_way_leaves_no_tasks(long_log: str) -> None:
    with sync.LogReader.open(long_log) as reader:
        batches = reader.batches()
        next(batches)
        batches.close()
        assert tasks_of(loop_thread()) == set()
        assert list(batches) == []
        batches.close()


def test_an_iterator_that_is_dropped_half_way_leaves_no_tasks(long_log: str) -> None:
    with sync.LogReader.open(long_log) as reader:
        for _ in reader.batches():
            break
        records = reader.records()
        next(records)
        del records
        assert tasks_of(loop_thread()) == set()


def test_an_iterator_that_never_began_leaves_no_tasks(long_log: str) -> None:
    with sync.LogReader.open(long_log) as reader:
        reader.batches()
        assert tasks_of(loop_thread()) == set()


def test_what_came_before_an_error_is_given_before_it(url: str) -> None:
    options = sl.WriterOptions(fragment_bytes=1)
    with sync.LogWriter.open(url, create=True, options=options) as log:
        for number in range(4):
            log.append(b"%d" % number)
    with sync.LogReader.open(url) as reader:
        last = reader.scan(from_offset=4)[0]
        (Path(url) / last.path).write_bytes(b"damage")
        records = reader.records()
        assert [next(records).offset for _ in range(3)] == [1, 2, 3]
        with pytest.raises(errors.Corrupt):
            next(records)
        assert list(records) == []


def test_following_ends_when_another_thread_closes_it(long_log: str) -> None:
    with sync.LogReader.open(long_log) as reader:
        batches = reader.follow(from_offset=20)
        first = next(batches)
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(list, batches)
            wait([rest], timeout=0.05)
            batches.close()
            assert (first.num_rows, rest.result(WAIT_S)) == (1, [])


def test_a_blocking_call_in_the_loop_thread_is_refused_with_a_hint() -> None:
    store = Gate()
    refused: Future[str] = Future()
    with sync.LogWriter.open(store, create=True) as log:

        def call_back(_: object) -> None:
            try:
                log.append(b"two")
            except errors.Invalid as error:
                refused.set_result(error.hint)

        store.open.clear()
        log.submit(b"one").add_done_callback(call_back)
        store.open.set()
        assert "Use the async classes there" in refused.result(WAIT_S)


def test_it_may_be_called_where_another_event_loop_runs(log: sync.LogWriter) -> None:
    async def notebook() -> int:
        return log.append(b"one").offset

    assert asyncio.run(notebook()) == 1


def test_there_is_one_loop_thread(url: str) -> None:
    with sync.LogWriter.open(url, create=True), sync.LogReader.open(url):
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("stratalog-sync") == 1


def test_herds_are_twins_too(store_url: str) -> None:
    with sync.Herd.open(store_url, server="a") as herd:
        log = herd.create("orders")
        assert log.append(b"one").offset == 1
        assert herd.log("orders").append_many([b"two", b"three"]).limit == 4
        assert (log.name, herd.server, herd.open_writers) == ("orders", "a", 1)
        assert list(herd.names()) == ["orders"]
        with log.reader() as reader:
            assert [record.body for record in reader.records()] == [b"one", b"two", b"three"]
        log.cursors().create("compaction", 4)
        found = sync.roll_up(herd)
        assert (found.marks, found.clean) == (2, 1)
        herd.drop("orders")
        with pytest.raises(errors.NotFound):
            herd.log("orders").id()
