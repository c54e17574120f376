"""One SeaweedFS server for a whole test run, however many pytest workers take part in it.

Whoever needs it first starts it, under a file lock in the run's folder. The process that began the
run (pytest itself, or the controller of pytest-xdist) outlives all workers, also those that crash,
and stops it at the end, with whatever else the run left running. A run that was killed leaves a
folder behind; the next run finds it, sees that its owner is dead, and ends what belongs to it.

What the processes of a run put aside (sockets, Spark's scratch folders) goes to that folder too.
Only what pytest keeps for people, the ``tmp_path`` of tests, stays where it would be anyway.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from strays import end_strays

FOLDER_VARIABLE = "STRATALOG_TEST_S3_FOLDER"
FOLDER_PREFIX = "stratalog-s3-"
START_TIMEOUT_S = 30.0
START_ATTEMPTS = 5


@dataclass(frozen=True)
class S3Server:
    """Where the server is and how to sign in."""

    endpoint: str
    bucket: str
    access_key_id: str
    secret_access_key: str
    pid: int
    ports: tuple[int, ...]

    @property
    def options(self) -> dict[str, str]:
        """For ``open_store(url, options=…)`` where the environment is not wanted."""
        return {
            "endpoint": self.endpoint,
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "region": "us-east-1",
        }

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_REGION": "us-east-1",
        }


def begin_run() -> bool:
    """Make the run's folder, unless a run above this one has. True for the owner."""
    if os.environ.get(FOLDER_VARIABLE):
        return False
    _stop_orphans()
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    (folder / "owner").write_text(str(os.getpid()))
    os.environ[FOLDER_VARIABLE] = str(folder)
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return True


def run_folder() -> Path:
    """The folder of the run that this process takes part in."""
    return Path(os.environ[FOLDER_VARIABLE])


def end_run() -> None:
    """End what the run left running, also the server, and remove the folder. For the owner only."""
    tempfile.tempdir = os.environ["PYTEST_DEBUG_TEMPROOT"]
    _stop(Path(os.environ.pop(FOLDER_VARIABLE)))


def shared_server() -> S3Server:
    """The run's server, started by the first who asks."""
    folder = run_folder()
    with _lock(folder):
        record = folder / "server.json"
        if record.exists():
            return S3Server(**json.loads(record.read_text()))
        return _start(folder)


def _start(folder: Path) -> S3Server:
    for attempt in range(START_ATTEMPTS):
        data = folder / f"data-{attempt}"
        data.mkdir()
        s3, master, volume, filer, admin = _free_ports(5)
        server_environment = {
            "AWS_ACCESS_KEY_ID": "stratalog-test",
            "AWS_SECRET_ACCESS_KEY": f"secret-{random.getrandbits(64):x}",
            "S3_BUCKET": "stratalog-test",
        }
        with (folder / f"log-{attempt}").open("wb") as log:
            process = subprocess.Popen(
                [
                    str(Path(sys.executable).parent / "weed"),
                    "mini",
                    f"-dir={data}",
                    "-ip=127.0.0.1",
                    "-ip.bind=127.0.0.1",
                    f"-s3.port={s3}",
                    f"-master.port={master}",
                    f"-volume.port={volume}",
                    f"-filer.port={filer}",
                    f"-admin.port={admin}",
                    "-webdav=false",
                    "-s3.port.iceberg=0",
                    "-s3.port.lance=0",
                    "-admin.ui=false",
                    "-master.telemetry=false",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | server_environment,
                start_new_session=True,
            )
        endpoint = f"http://127.0.0.1:{s3}"
        server = S3Server(
            endpoint,
            server_environment["S3_BUCKET"],
            server_environment["AWS_ACCESS_KEY_ID"],
            server_environment["AWS_SECRET_ACCESS_KEY"],
            process.pid,
            (s3, master, volume, filer, admin),
        )
        (folder / "server.json").write_text(json.dumps(asdict(server)))
        if _becomes_ready(process, f"{endpoint}/healthz", folder / f"log-{attempt}"):
            process.returncode = 0  # it outlives this worker on purpose: no ResourceWarning
            return server
        process.kill()
        process.wait()
        (folder / "server.json").unlink()
    log_text = (folder / f"log-{START_ATTEMPTS - 1}").read_text(errors="replace")
    raise RuntimeError(f"SeaweedFS did not start:\n{log_text[-2000:]}")


def _becomes_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        if "Press Ctrl+C" in log.read_text(errors="replace"):
            with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        time.sleep(0.05)
    return False


def _free_ports(count: int) -> list[int]:
    """Ports that are free together with port + 10000, all below those the system hands out."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(10_100, 22_000)
        if port not in found and _is_free(port) and _is_free(port + 10_000):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _stop(folder: Path) -> None:
    with suppress(FileNotFoundError), _lock(folder):
        record = folder / "server.json"
        if record.exists():
            server = S3Server(**json.loads(record.read_text()))
            pid = server.pid
            if _is_ours(pid, folder):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)
            _remove_sockets(server)
    end_strays(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_sockets(server: S3Server) -> None:
    """Its sockets are not in its folder, whatever it is told, and it was killed."""
    for port in server.ports:
        for number in (port, port + 10_000):
            for path in Path("/tmp").glob(f"seaweedfs-*-{number}.sock"):
                path.unlink(missing_ok=True)


def _stop_orphans() -> None:
    """Clean up after runs that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError, ValueError):
            if not _is_alive(int((folder / "owner").read_text())):
                _stop(folder)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_ours(pid: int, folder: Path) -> bool:
    """Whether the process with this id is the server of this folder, and not a later one."""
    found = subprocess.run(
        ["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return str(folder) in found.stdout


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
