"""Forks, new processes and the end of a program: nothing hangs and nothing is left behind."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from stratalog import errors, sync

WAIT_S = 60

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of its own with every warning an error."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def assert_silent(done: subprocess.CompletedProcess[str], output: str = "") -> None:
    assert (done.returncode, done.stdout, done.stderr) == (0, output, "")


FORKED = """
    import os, sys
    from stratalog import errors, sync

    url = sys.argv[1]
    log = sync.LogWriter.open(url, create=True)
    reader = sync.LogReader.open(url)
    batches = reader.batches()
    cursors = sync.CursorStore(url)
    log.append(b"parent")
    child = os.fork()
    if child == 0:
        for use in (lambda: log.append(b"no"), lambda: log.submit(b"no"), reader.refresh,
                    lambda: next(batches), reader.records, cursors.list, log.close,
                    lambda: sync.collect(url, log_writer=log)):
            try:
                use()
            except errors.Invalid as error:
                assert "after the fork" in error.hint
            else:
                raise AssertionError("it was not refused")
        assert log.tail == 2
        del batches
        with sync.LogWriter.open(url, create=True) as mine:
            mine.append(b"child")
        {end}
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    reader.refresh()
    print(reader.tail)
    log.close()
"""


@forks
@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"])
@pytest.mark.parametrize("place", ["directory", "memory"])
def test_a_forked_child_is_told_to_open_its_own_and_can(
    tmp_path: Path, place: str, end: str
) -> None:
    url = str(tmp_path / "log") if place == "directory" else "memory://forked"
    done = run_python(FORKED.replace("{end}", end), url)
    assert_silent(done, "3\n" if place == "directory" else "2\n")


@forks
def test_a_forked_child_may_leave_the_block_of_its_parent(tmp_path: Path) -> None:
    code = """
        import os, sys
        from stratalog import sync

        with sync.LogWriter.open(sys.argv[1], create=True) as log:
            child = os.fork()
            if child == 0:
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            print(log.append(b"parent").offset)
    """
    assert_silent(run_python(code, str(tmp_path / "log")), "1\n")


def read_all(reader: sync.LogReader) -> list[bytes]:
    return [record.body for record in reader.records()]


def cursor_names(cursors: sync.CursorStore) -> list[str]:
    return [cursor.name for cursor in cursors.list()]


@pytest.mark.slow
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_readers_and_cursor_stores_travel_to_other_processes(tmp_path: Path, method: str) -> None:
    url = str(tmp_path / "log")
    with sync.LogWriter.open(url, create=True) as log:
        log.append_many([b"one", b"two"])
    cursors = sync.CursorStore(url)
    cursors.create("here", 1)
    context = multiprocessing.get_context(method)
    with sync.LogReader.open(url) as reader, ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(read_all, [reader] * 4)) == [[b"one", b"two"]] * 4
        assert pool.submit(cursor_names, cursors).result() == ["here"]


@pytest.mark.slow
def test_an_error_travels_back_from_a_process(tmp_path: Path) -> None:
    url = str(tmp_path / "log")
    sync.create_log(url)
    reader = sync.LogReader.open(url)
    sent = pickle.dumps(reader)
    (tmp_path / "log" / "manifest" / "MANIFEST").unlink()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        failure = pool.submit(open_and_fail, sent).exception()
    assert isinstance(failure, errors.NotFound)
    assert failure.path == "manifest/MANIFEST"


def open_and_fail(sent: bytes) -> None:
    pickle.loads(sent)


@pytest.mark.parametrize(
    "ending",
    [
        "pass",
        "log.close()",
        "log.submit(b'two')",
        "iterator = reader.batches(); next(iterator)",
        "next(reader.follow(1))",
        "threading.Thread(target=lambda: list(reader.follow()), daemon=True).start()",
        "cycle = [reader.batches()]; next(cycle[0]); cycle.append(cycle)",
        "sys.exit(0)",
    ],
)
def test_a_program_ends_at_once_and_in_silence_whatever_is_open(
    tmp_path: Path, ending: str
) -> None:
    code = f"""
        import sys, threading
        from stratalog import sync

        log = sync.LogWriter.open(sys.argv[1], create=True)
        log.append(b"one")
        reader = sync.LogReader.open(sys.argv[1])
        {ending}
    """
    assert_silent(run_python(code, str(tmp_path / "log")))


def test_importing_starts_no_thread() -> None:
    code = """
        import threading
        from stratalog import sync

        print(threading.active_count(), sync.LogWriter.__name__)
    """
    assert_silent(run_python(code), "1 LogWriter\n")


def test_after_the_end_of_the_loop_thread_a_call_is_refused(tmp_path: Path) -> None:
    code = """
        import atexit, sys
        from stratalog import errors, sync

        @atexit.register
        def last() -> None:
            for use in (lambda: log.append(b"late"), lambda: sync.LogReader.open(sys.argv[1]),
                        lambda: log.submit(b"late")):
                try:
                    use()
                except errors.Closed as error:
                    print(error)

        log = sync.LogWriter.open(sys.argv[1], create=True)
    """
    assert_silent(run_python(code, str(tmp_path / "log")), "Python is ending\n" * 3)


def test_a_thread_that_outlives_the_loop_thread_is_told_and_does_not_hang(tmp_path: Path) -> None:
    code = """
        import sys, threading
        from stratalog import errors, sync
        from stratalog.store import MemoryStore

        class Stuck(MemoryStore):
            async def put_if_absent(self, path, data):
                if path.startswith("log/"):
                    reached.set()
                    await asyncio.Event().wait()
                return await super().put_if_absent(path, data)

        def work(call):
            try:
                call()
            except errors.StratalogError as error:
                sys.stdout.write(f"{error.kind}\\n")

        import asyncio
        reached = threading.Event()
        log = sync.LogWriter.open(Stuck(), create=True)
        future = log.submit(b"one")
        reached.wait()
        for call in (future.result, lambda: log.append(b"two"), log.flush):
            threading.Thread(target=work, args=[call]).start()
        while len(log._thread._waiting) < 3:
            pass
    """
    done = run_python(code, str(tmp_path / "log"))
    assert sorted(done.stdout.split()) == ["not-happened", "unknown", "unknown"]
    assert_silent(done, done.stdout)


@forks
def test_ctrl_c_ends_the_wait_and_not_the_append(tmp_path: Path) -> None:
    code = """
        import os, signal, sys, threading
        from stratalog import sync
        from stratalog.store import open_store

        class Slow:
            def __init__(self, inner): self.inner = inner
            def __getattr__(self, name): return getattr(self.inner, name)
            async def put_if_absent(self, path, data):
                if path.startswith("log/") and not gate.is_set():
                    os.kill(os.getpid(), signal.SIGINT)
                    while not gate.is_set():
                        await asyncio.sleep(0.001)
                return await self.inner.put_if_absent(path, data)

        import asyncio
        signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored
        gate = threading.Event()
        log = sync.LogWriter.open(Slow(open_store(sys.argv[1])), create=True)
        try:
            log.append(b"one")
        except KeyboardInterrupt:
            gate.set()
        print(log.append(b"two").offset)
        log.close()
    """
    done = run_python(code, str(tmp_path / "log"))
    assert_silent(done, "2\n")
