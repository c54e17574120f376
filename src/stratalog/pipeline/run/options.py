"""The options of a run."""

from dataclasses import dataclass

from stratalog.herd import COMPACTION, check_name
from stratalog.pipeline.jobs import check_job_cursor, require


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run does in each stage."""

    job: str = "latest"
    """The name of the job whose outputs are made."""

    cursor: str = COMPACTION
    """The cursor up to which logs are compacted."""

    age_s: float = 0.0
    """Materialize what has waited for so long. 0 is all that waits."""

    records: int = 10_000
    """Materialize at once what has so many records waiting."""

    interval_s: float = 5.0
    """How long slow readers get before anything is deleted."""

    sweep: bool = False
    """Also delete the objects that nothing links."""

    keep_audits: int = 10
    """How many audits are kept."""

    measure: bool = True
    """Measure the herd before and after: one or two reads a log, each time."""

    def __post_init__(self) -> None:
        check_name(self.job, "job")
        check_job_cursor(self.cursor)
        require(self.age_s >= 0, "age_s is not negative")
        require(self.records >= 1, "records is at least 1")
        require(self.interval_s >= 0, "interval_s is not negative")
        require(self.keep_audits >= 1, "keep_audits is at least 1")
