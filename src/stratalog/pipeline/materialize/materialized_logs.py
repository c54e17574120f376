"""What ``materialize`` has published, log by log."""

from dataclasses import dataclass

from stratalog.pipeline.jobs import Counted, Trouble
from stratalog.store import Usage


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
class Materialized(Counted):
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
    def rows(self) -> int:
        return sum(each.rows for each in self.logs)

    @property
    def bytes_in(self) -> int:
        return sum(each.bytes_in for each in self.logs)

    @property
    def bytes_out(self) -> int:
        return sum(each.bytes_out for each in self.logs)
