"""The options of a herd, with their defaults and limits."""

from dataclasses import dataclass, field

from stratalog.errors import Invalid
from stratalog.objectlog import WriterOptions

COMPACTION = "compaction"
"""The cursor up to which a log is compacted, by default."""


@dataclass(frozen=True, kw_only=True)
class HerdOptions:
    """How a server uses the logs of a herd."""

    writer: WriterOptions = field(
        default_factory=lambda: WriterOptions(on_fenced="reopen", queue_bytes_max=16 << 20)
    )
    """The options of each log's writer."""

    open_max: int = 1000
    """How many writers are open at most; an idle one costs about 63 kB."""

    idle_s: float = 60.0
    """A writer that nobody used for so long is closed."""

    compaction_cursor: str = COMPACTION
    """The name of the cursor up to which a log is compacted."""

    uncompacted_records_max: int | None = None
    """More than so many records after that cursor, and an append is refused with ``Full``."""

    cursor_s: float = 5.0
    """How old the position of that cursor may be before it is read again."""

    def __post_init__(self) -> None:
        _require(self.open_max >= 1, "open_max is at least 1")
        _require(self.idle_s > 0, "idle_s is positive")
        _require(self.cursor_s >= 0, "cursor_s is not negative")
        limit = self.uncompacted_records_max
        _require(limit is None or limit >= 1, "uncompacted_records_max is at least 1, or None")


@dataclass(frozen=True, kw_only=True)
class RollUpOptions:
    """Which dirty logs a roll-up selects."""

    age_s: float = 600.0
    """A log that has been dirty for so long is selected, however little it holds."""

    records: int = 10_000
    """A log with so many records after its cursor is selected at once."""

    reinsertions: int = 100
    """A log that was put back so often is selected in any case."""

    compaction_cursor: str = COMPACTION
    """The name of the cursor up to which a log is compacted."""

    reads_at_once: int = 32
    """How many logs are looked at at a time."""

    marks_at_once: int = 100_000
    """How many marks are taken from a dirty log in one run; the rest is for the next."""

    collect: bool = True
    """Whether the marks that are done with are deleted."""

    def __post_init__(self) -> None:
        _require(self.age_s >= 0, "age_s is not negative")
        for name in ("records", "reinsertions", "reads_at_once", "marks_at_once"):
            _require(getattr(self, name) >= 1, f"{name} is at least 1")


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise Invalid(f"not a legal option of a herd: {rule}", hint="See docs/guide/herd.md.")
