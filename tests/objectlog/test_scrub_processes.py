"""A scrub in several processes finds the same, and leaves none behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import stratalog as sl
from hashing.makers import with_vectors, without_vectors
from objectlog.planted_damage import (
    Victim,
    a_flipped_bit_of_a_body,
    a_missing_fragment,
    a_missing_snapshot,
    a_truncated_fragment,
)
from objectlog.whole_log import FakeClock, run
from s3_server import S3Server
from stratalog import ScrubOptions
from stratalog.errors import Invalid, Unavailable
from stratalog.objectlog.check import scrub_log as scrubbing
from stratalog.objectlog.check import scrub_pool
from stratalog.objectlog.check.scrub_log import scrub
from stratalog.objectlog.check.scrub_read import LocalExaminer
from stratalog.objectlog.check.scrub_worker import Job, frame
from stratalog.store import DirectoryStore, MemoryStore

HERE = ScrubOptions(processes=0)
THERE = ScrubOptions(processes=2, fragments_max=8)


def directory_url(tmp_path: Path) -> str:
    return (tmp_path / "log").as_uri()


async def make(url: str, appends: int = 60) -> None:
    async with sl.LogWriter.open(url, create=True) as log:
        for number in range(appends):
            await log.append_many([b"%d.%d" % (number, i) * 20 for i in range(50)])


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the processes that are started for scrubs."""
    found: list[int] = []
    start = scrub_pool._start_process

    async def noting() -> asyncio.subprocess.Process:
        process = await start()
        found.append(process.pid)
        return process

    monkeypatch.setattr(scrub_pool, "_start_process", noting)
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("place", ["directory", pytest.param("s3", marks=pytest.mark.s3)])
def test_it_finds_the_same_as_one_process(
    place: str, tmp_path: Path, request: pytest.FixtureRequest, processes: list[int]
) -> None:
    url = directory_url(tmp_path) if place == "directory" else request.getfixturevalue("s3_url")

    async def main() -> None:
        victim = await Victim.make(sl.open_store(url))
        assert await scrub(url, options=THERE) == await scrub(url, options=HERE)
        for planter in (
            a_missing_fragment,
            a_truncated_fragment,
            a_flipped_bit_of_a_body,
            a_missing_snapshot,
        ):
            await planter(victim)
        report = await scrub(url, options=THERE)
        assert report == await scrub(url, options=HERE)
        assert len(report.damages) == 5
        shallow = ScrubOptions(processes=1, bodies=False)
        report = await scrub(url, options=shallow)
        assert report == await scrub(url, options=ScrubOptions(processes=0, bodies=False))
        assert len(processes) == 5
        assert not any(map(is_alive, processes))

    run(main())


def test_a_cancelled_scrub_ends_its_processes(tmp_path: Path, processes: list[int]) -> None:
    url = directory_url(tmp_path)

    async def main() -> None:
        await make(url)
        for moment in range(3):
            begun = asyncio.Event()
            work = asyncio.ensure_future(
                scrub(url, options=THERE, on_progress=lambda _, begun=begun: begun.set())  # type: ignore[misc]
            )
            if moment == 0:
                while not processes:
                    await asyncio.sleep(0)
            elif moment == 1:
                await begun.wait()
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
            assert not any(map(is_alive, processes)), f"moment {moment}"

    run(main())
    assert processes


def test_a_process_that_is_killed_ends_the_scrub_with_a_hint(
    tmp_path: Path, processes: list[int]
) -> None:
    url = directory_url(tmp_path)

    async def main() -> None:
        await make(url)

        def kill(_: object) -> None:
            os.kill(processes[0], signal.SIGKILL)

        options = ScrubOptions(processes=1, fragments_max=2)
        with pytest.raises(Unavailable, match="ended unexpectedly") as caught:
            await scrub(url, options=options, on_progress=kill)
        assert "resume" in caught.value.hint
        assert not any(map(is_alive, processes))

    run(main())


def test_a_process_does_not_outlive_the_one_that_started_it(tmp_path: Path) -> None:
    job = frame(Job(directory_url(tmp_path), bodies=True, timeout_s=1.0))
    done = subprocess.run(
        [sys.executable, "-c", scrub_pool._PROGRAM],
        input=job,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_script_needs_no_guard_around_its_main_part(tmp_path: Path) -> None:
    """``multiprocessing`` would run the script again in each process, or not find it at all."""
    url = directory_url(tmp_path)
    run(make(url, 3))
    script = f"""
import asyncio
from stratalog import ScrubOptions
from stratalog import scrub
print(asyncio.run(scrub({url!r}, options=ScrubOptions(processes=1))).clean)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-"],
        input=script,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


class Started(Exception):
    """Processes would have been started."""


class TestHowManyAreUsed:
    @pytest.fixture(autouse=True)
    def nothing_starts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def start(job: Job, processes: int, fragments_max: int) -> LocalExaminer:
            raise Started(job.url, processes)

        monkeypatch.setattr(scrub_pool.WorkerPool, "start", start)
        monkeypatch.setattr(scrubbing, "PROCESSES_FROM_BYTES", 1)
        monkeypatch.setattr(scrubbing, "MAKER", without_vectors())

    def test_threads_are_enough_where_records_are_hashed_in_vectors(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scrubbing, "MAKER", with_vectors())
        monkeypatch.setattr(scrubbing, "THREADS_FROM_FRAGMENT_BYTES", 0)
        url = directory_url(tmp_path)
        run(make(url, 2))
        assert run(scrub(url)).clean
        with pytest.raises(Started):
            run(scrub(url, options=THERE))

    def test_small_fragments_are_not_for_threads(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scrubbing, "MAKER", with_vectors())
        run(make(directory_url(tmp_path), 2))
        with pytest.raises(Started):
            run(scrub(directory_url(tmp_path)))

    def test_more_cores_than_threads_are_used_by_processes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scrubbing, "MAKER", with_vectors())
        monkeypatch.setattr(scrubbing, "THREADS_FROM_FRAGMENT_BYTES", 0)
        monkeypatch.setattr(scrubbing, "CPU_THREADS_MAX", len(os.sched_getaffinity(0)) - 1)
        run(make(directory_url(tmp_path), 2))
        with pytest.raises(Started):
            run(scrub(directory_url(tmp_path)))

    def test_a_large_log_that_has_a_url_is_scrubbed_on_all_cores(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        run(make(str(path), 2))
        for target in (str(path), path, path.as_uri(), DirectoryStore(path)):
            with pytest.raises(Started) as caught:
                run(scrub(target))
            url, processes = caught.value.args
            assert sl.open_store(url).url == path.as_uri()
            assert processes == len(os.sched_getaffinity(0))

    def test_a_relative_path_is_the_same_place_for_other_processes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run(make(str(tmp_path / "log"), 1))
        monkeypatch.chdir(tmp_path)
        with pytest.raises(Started) as caught:
            run(scrub("log"))
        assert caught.value.args[0] == str(tmp_path / "log")

    def test_a_small_log_is_scrubbed_by_this_process(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.undo()
        url = directory_url(tmp_path)
        run(make(url, 2))
        assert run(scrub(url)).clean

    def test_a_store_of_this_process_is_scrubbed_by_it(self) -> None:
        run(make("memory://scrubbed-here", 2))
        assert run(scrub("memory://scrubbed-here")).clean
        store = MemoryStore.named("scrubbed-here")
        assert run(scrub(store)).clean
        for target in ("memory://scrubbed-here", store):
            with pytest.raises(Invalid, match="cannot open") as caught:
                run(scrub(target, options=ScrubOptions(processes=2)))
            assert "processes" in caught.value.hint

    @pytest.mark.s3
    def test_credentials_that_were_given_explicitly_stay_in_this_process(
        self, s3_url: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run(make(s3_url, 2))
        names = {"AWS_ACCESS_KEY_ID": "access_key_id", "AWS_SECRET_ACCESS_KEY": "secret_access_key"}
        given = {option: os.environ[name] for name, option in names.items()}
        for name in names:
            monkeypatch.delenv(name)
        assert run(scrub(sl.open_store(s3_url, options=given))).clean

    def test_a_simulated_scrub_starts_no_process(self, tmp_path: Path) -> None:
        url = directory_url(tmp_path)
        run(make(url, 2))
        assert run(scrub(url, runtime=FakeClock())).clean

    def test_a_program_that_cannot_start_another_python_does_without(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = directory_url(tmp_path)
        run(make(url, 2))
        monkeypatch.setattr(sys, "frozen", True, raising=False)
        assert run(scrub(url)).clean


def test_a_process_that_cannot_be_started_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = directory_url(tmp_path)
    run(make(url, 2))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(Unavailable, match="cannot be started") as caught:
        run(scrub(url, options=ScrubOptions(processes=1)))
    assert "processes=0" in caught.value.hint
