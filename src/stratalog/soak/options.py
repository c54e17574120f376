"""The options of a soak, with their defaults and limits."""

from dataclasses import dataclass

from stratalog.errors import Invalid
from stratalog.objectlog.stored import HEADER_BYTES

RATE_MAX = 1_000_000.0
WRITERS_MAX = 256
RECORD_BYTES_MAX = 32_768
DURATION_S_MAX = 365 * 86_400.0


@dataclass(frozen=True, kw_only=True)
class SoakOptions:
    """How much the soak writes, with how many writers, for how long, and its chores."""

    rate: float = 200.0
    """Records per second on average; the rate wanders about it."""

    duration_s: float = 60.0
    """How long it writes. Then it reads the rest and makes the last checks."""

    writers: int = 3
    """How many writers share the log."""

    callers: int = 4
    """How many callers share a writer, each with one append under way."""

    record_bytes: int = 250
    """The mean size of a record. A few are many times larger."""

    life_s: float = 8.0
    """The mean time after which a writer is killed, or closed, and replaced."""

    chore_s: float = 3.0
    """The mean time between two collections, sweeps, pins and side reads. Forks are four times
    rarer."""

    lag_max: int = 100_000
    """How many records the reader may lag behind before the writers wait for it."""

    drain_timeout_s: float = 120.0
    """How long the reader may take to read the rest."""

    force: bool = False
    """Also write to an existing log. Its records stay: it is not collected."""

    def __post_init__(self) -> None:
        _require(0 < self.rate <= RATE_MAX, "rate is positive, up to a million")
        _require(0 < self.duration_s <= DURATION_S_MAX, "duration_s is positive, up to a year")
        _require(1 <= self.writers <= WRITERS_MAX, f"writers is 1 to {WRITERS_MAX}")
        _require(1 <= self.callers <= WRITERS_MAX, f"callers is 1 to {WRITERS_MAX}")
        _require(
            HEADER_BYTES <= self.record_bytes <= RECORD_BYTES_MAX,
            f"record_bytes is {HEADER_BYTES} to {RECORD_BYTES_MAX}",
        )
        _require(self.life_s > 0, "life_s is positive")
        _require(self.chore_s > 0, "chore_s is positive")
        _require(self.lag_max >= 1, "lag_max is at least 1")
        _require(self.drain_timeout_s > 0, "drain_timeout_s is positive")


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise Invalid(
            f"not a legal option of a soak: {rule}", hint="docs/guide/proof.md explains each."
        )
