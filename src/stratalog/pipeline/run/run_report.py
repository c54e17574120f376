"""What a run of the pipeline did: numbers that can be stored, shown and compared.

Everything in it is plain data; ``to_dict`` is ready for JSON. ``html_report`` makes a page of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Literal

from stratalog.errors import StratalogError
from stratalog.pipeline.outputs import HerdSize, LogSize
from stratalog.store import Usage, redact

Stage = Literal["roll-up", "materialize", "compact", "collect", "scrub", "verify"]
STAGES: tuple[Stage, ...] = ("roll-up", "materialize", "compact", "collect", "scrub", "verify")

LARGEST_MAX = 20
TROUBLES_MAX = 200
SMALLEST_BIN_BYTES = 1024
BIN_FACTOR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """One stage. What a number means depends on the stage: ``docs/guide/pipeline.md``."""

    stage: Stage
    seconds: float
    logs: int = 0
    records: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    """What else there is to say, by name."""

    requests: Usage = field(default_factory=Usage)
    troubles: tuple[str, ...] = ()
    """What went wrong with single logs. The others went on."""

    corrupt: int = 0
    """How many of the troubles are stored bytes that are wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What the herd held."""

    logs: int
    records: int
    num_bytes: int
    output_rows: int
    output_bytes: int

    @classmethod
    def of(cls, size: HerdSize) -> Totals:
        return cls(
            logs=len(size.logs),
            records=size.records,
            num_bytes=size.num_bytes,
            output_rows=size.output_rows,
            output_bytes=size.output_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One log before and after."""

    log: str
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int
    output_rows: int
    output_bytes: int


@dataclass(frozen=True, slots=True)
class SizeBin:
    """How many logs held from ``low`` up to, but not including, ``high`` bytes."""

    low: int
    high: int
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What all records of the herd add up to, as the manifests say and as they were hashed."""

    audit: str
    logs: int
    compared: int
    """How many logs had all their records hashed."""

    records: int
    expected_sum: str
    actual_sum: str
    collected_sum: str
    damages: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return self.expected_sum == self.actual_sum and not self.damages


@dataclass(frozen=True, slots=True)
class Failure:
    """The error that ended a run before its last stage."""

    kind: str
    message: str
    hint: str

    @classmethod
    def of(cls, error: StratalogError) -> Failure:
        return cls(error.kind, redact(str(error)), redact(error.hint))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One run."""

    root: str
    server: str
    started_us: int
    ended_us: int
    stages: tuple[StageReport, ...]
    before: Totals | None = None
    after: Totals | None = None
    sizes: tuple[SizeBin, ...] = ()
    largest: tuple[LogLine, ...] = ()
    proof: Proof | None = None
    """None if nothing was scrubbed."""

    findings: tuple[str, ...] | None = None
    """What the verification found; None if there was none."""

    failure: Failure | None = None
    error: StratalogError | None = field(default=None, repr=False, compare=False)
    """The failure as it was raised."""

    @property
    def seconds(self) -> float:
        return (self.ended_us - self.started_us) / 1e6

    @property
    def troubles(self) -> tuple[str, ...]:
        return tuple(each for stage in self.stages for each in stage.troubles)

    @property
    def requests(self) -> Usage:
        return sum((stage.requests for stage in self.stages), Usage())

    @property
    def is_damaged(self) -> bool:
        """Whether stored bytes are wrong, or the parts of the herd do not fit together."""
        is_corrupt = any(stage.corrupt for stage in self.stages)
        is_unproven = self.proof is not None and not self.proof.holds
        return is_corrupt or is_unproven or bool(self.findings)

    @property
    def ok(self) -> bool:
        """Whether every stage did all of its work, and nothing is wrong."""
        return self.failure is None and not self.troubles and not self.is_damaged

    def stage(self, name: Stage) -> StageReport | None:
        return next((each for each in self.stages if each.stage == name), None)

    def to_dict(self) -> dict[str, object]:
        """Everything, ready for JSON."""
        facts = asdict(self)
        del facts["error"]
        return {**facts, "seconds": self.seconds, "ok": self.ok, "requests": asdict(self.requests)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Something that a display may want to show."""

    kind: Literal["begun", "progress", "ended", "round"]
    stage: Stage | None = None
    done: int = 0
    total: int = 0
    unit: str = ""
    report: StageReport | None = None
    """What an ended stage did."""

    round: RunReport | None = None
    """What an ended round did."""

    wait_s: float = 0.0
    """How long it is until the next round."""


OnEvent = Callable[[RunEvent], None]
"""May be called from another thread."""


def texts_of(troubles: Iterable[object]) -> tuple[str, ...]:
    """Troubles as a report keeps them: without secrets, and up to a number."""
    listed = [redact(str(each)) for each in troubles]
    more = len(listed) - TROUBLES_MAX
    return (*listed[:TROUBLES_MAX], *((f"and {more:,} more",) if more > 0 else ()))


def size_bins(before: Sequence[LogSize], after: Sequence[LogSize]) -> tuple[SizeBin, ...]:
    """Logs by their bytes, each bin four times as wide as the one before it."""
    largest = max((each.num_bytes for each in (*before, *after)), default=0)
    edges = [0, SMALLEST_BIN_BYTES]
    while edges[-1] <= largest:
        edges.append(edges[-1] * BIN_FACTOR)

    def count(logs: Sequence[LogSize], low: int, high: int) -> int:
        return sum(low <= each.num_bytes < high for each in logs)

    return tuple(
        SizeBin(low, high, count(before, low, high), count(after, low, high))
        for low, high in pairwise(edges)
    )


def largest_logs(before: Sequence[LogSize], after: Sequence[LogSize]) -> tuple[LogLine, ...]:
    """The logs with the most bytes, before or after."""
    nothing = LogSize(log=None, log_id="")
    was = {each.log_id: each for each in before}
    now = {each.log_id: each for each in after}
    lines = []
    for log_id in {**was, **now}:
        old, new = was.get(log_id, nothing), now.get(log_id, nothing)
        lines.append(
            LogLine(
                log=new.log or old.log or log_id,
                records_before=old.records,
                records_after=new.records,
                bytes_before=old.num_bytes,
                bytes_after=new.num_bytes,
                output_rows=new.output_rows,
                output_bytes=new.output_bytes,
            )
        )
    lines.sort(key=lambda line: (-max(line.bytes_before, line.bytes_after), line.log))
    return tuple(lines[:LARGEST_MAX])
