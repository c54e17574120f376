"""The brokers that a bench compares: ours, which it starts, and peers, which must be running."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import ROOT
from bench.broker.process_cost import Process, process_at
from bench.segments.folders import fresh_folder

END_S = 30.0
KAFKA = "Kafka, unsynced"
KAFKA_SYNCED = "Kafka, flush.messages=1"


@dataclass(frozen=True)
class Contender:
    """A broker, and the settings that its topics get."""

    name: str
    address: str
    process: Process
    settings: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None


def kafka_peers(address: str) -> list[Contender]:
    """Kafka as it comes, and Kafka that promises what we promise: two kinds of topics."""
    process = process_at(address)
    if process is None:
        raise LookupError(f"no process of this machine listens on {address}")
    gone_at_once = {"file.delete.delay.ms": "100"}
    return [
        Contender(KAFKA, address, process, gone_at_once),
        Contender(KAFKA_SYNCED, address, process, {"flush.messages": "1"} | gone_at_once),
    ]


@contextmanager
def our_broker() -> Iterator[Contender]:
    """Our broker, in a process of its own with default options, on a fresh folder."""
    with fresh_folder() as folder:
        command = [sys.executable, "-m", "stratalog", "serve", "--data", str(folder / "data")]
        command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=log)
        assert process.stderr is not None
        try:
            address = _address(iter(process.stderr.readline, b""))
            # What it says later goes nowhere: a full pipe would stop it.
            drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
            process.stderr.close()
            yield Contender("ours", address, Process(process.pid), folder=folder / "data")
            drain.terminate()
            drain.wait()
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(lines: Iterator[bytes]) -> str:
    said: list[str] = []
    for line in lines:
        said.append(line.decode(errors="replace").rstrip())
        if said[-1].startswith("ready "):
            named = dict(part.split("=", 1) for part in said[-1].split()[1:])
            return named["kafka"]
    raise RuntimeError("the broker did not come up: " + " / ".join(said[-5:]))
