"""A real Spark cluster on loopback: a standalone master and its workers, each a process.

All of it is PySpark's own: ``spark-class`` starts the classes that an operator would start. What
the processes write goes into one folder, and they end with the ``with`` block.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

import signals
from jvm import SHORT_LIVED
from stratalog.pipeline.spark.java import find_java

LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0

SPARK_HOME = Path(pyspark.__file__).parent


@dataclass(frozen=True)
class Cluster:
    """Where the master is, and where each worker puts what its executors leave behind."""

    master: str
    worker_folders: tuple[Path, ...]

    @property
    def conf(self) -> dict[str, str]:
        """What a session needs to know, since this cluster is small and on loopback."""
        return {
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        }


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """One master and ``workers`` workers with one core and 1 GB each."""
    master_port, web_port, *worker_ports = _free_ports(2 + workers)
    folders = tuple(folder / f"worker-{number}" for number in range(workers))
    cluster = Cluster(f"spark://{LOOPBACK}:{master_port}", folders)
    with ExitStack() as stack:
        at = ("--host", LOOPBACK, "--port")
        web = ("--webui-port", str(web_port))
        master = _daemon(folder, "master.Master", *at, str(master_port), *web)
        processes = [stack.enter_context(master)]
        _wait(web_port, processes, folder, workers=0)
        for place, port in zip(folders, worker_ports, strict=True):
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(place))
            web = ("--webui-port", str(port))
            worker = _daemon(folder, "worker.Worker", *at, "0", *web, *size, cluster.master)
            processes.append(stack.enter_context(worker))
        _wait(web_port, processes, folder, workers)
        yield cluster


@contextmanager
def _daemon(folder: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """One process of the cluster. The executors of a worker are in the same group as it is."""
    with (folder / "log").open("ab") as log:
        process = signals.Program(
            [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            cwd=folder,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(folder: Path) -> Mapping[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{SHORT_LIVED} -Djava.io.tmpdir={folder}",
    }


def _wait(
    web_port: int, processes: list[subprocess.Popen[bytes]], folder: Path, workers: int
) -> None:
    """Until the master counts this many workers."""
    url = f"http://{LOOPBACK}:{web_port}/json/"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in processes):
            break
        with suppress(OSError), closing(direct.open(url, timeout=5)) as answer:
            if json.load(answer)["aliveworkers"] >= workers:
                return
        time.sleep(0.1)
    log = (folder / "log").read_text(errors="replace")
    raise RuntimeError(f"the cluster did not start:\n{log[-4000:]}")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind((LOOPBACK, 0))
        return [int(each.getsockname()[1]) for each in held]
