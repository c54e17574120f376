"""What ``materialize`` may be told, and what it tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from stratalog.herd import COMPACTION, check_name
from stratalog.pipeline.jobs import Trouble, check_job_cursor, require
from stratalog.pipeline.outputs import FILE_BYTES
from stratalog.pipeline.source import SPLIT_BYTES
from stratalog.store import Usage

Stage = Literal["plan", "merge", "publish"]


@dataclass(frozen=True, kw_only=True)
class MaterializeOptions:
    """How a job merges, and under which names."""

    job: str = "latest"
    """The name of the job: its outputs lie under it."""

    cursor: str = COMPACTION
    """The cursor that says up to where a log is merged. Each job needs one of its own."""

    split_bytes: int = SPLIT_BYTES
    """About how many bytes of a log a task reads."""

    file_bytes: int = FILE_BYTES
    """About how large a file of an output may be."""

    logs_at_once: int = 5000
    """How many logs share one Spark job at most."""

    verify: bool = True
    """Whether each record is hashed: what is merged may be collected from the log afterwards."""

    def __post_init__(self) -> None:
        check_name(self.job, "job")
        check_job_cursor(self.cursor)
        require(self.split_bytes >= 1, "split_bytes is at least 1")
        require(self.file_bytes >= 1, "file_bytes is at least 1")
        require(self.logs_at_once >= 1, "logs_at_once is at least 1")


@dataclass(frozen=True, slots=True)
class MaterializeProgress:
    """How far a run is."""

    stage: Stage
    done: int
    """How many logs are through this stage; of merging, how many of Spark's tasks."""

    total: int


OnProgress = Callable[[MaterializeProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializedLog:
    """What was published of one log."""

    name: str
    log_id: str
    records: int
    """How many records were merged in."""

    rows: int
    """How many rows the output has now."""

    bytes_in: int
    """The bytes of the fragments that hold the records."""

    bytes_out: int
    """The bytes of the output."""

    files: int
    upto: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Materialized:
    """What a run did."""

    logs: tuple[MaterializedLog, ...]
    """The logs that have a new output."""

    unchanged: int
    """How many logs had nothing new."""

    caught_up: int
    """How many of those had an output beyond their cursor, which was moved: a run had crashed."""

    troubles: tuple[Trouble, ...]
    plan_s: float
    merge_s: float
    publish_s: float
    usage: Usage
    """What the store was asked for, by the tasks too."""

    @property
    def records(self) -> int:
        return sum(each.records for each in self.logs)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.logs)

    @property
    def bytes_in(self) -> int:
        return sum(each.bytes_in for each in self.logs)

    @property
    def bytes_out(self) -> int:
        return sum(each.bytes_out for each in self.logs)
