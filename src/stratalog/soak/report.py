"""The progress of a soak, and its result."""

import msgspec

from stratalog.meter import Timing
from stratalog.soak.ledger import Violation


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a soak at one moment."""

    elapsed_s: float
    rate: float
    """Records acknowledged per second: recently, or in a report over the whole soak."""

    called: int
    """Records that were handed to a writer. Each is acknowledged, failed, unknown, or under way."""

    acknowledged: int
    failed: int
    unknown: int
    landed: int
    """How many of the unknown ones were read."""

    read: int
    others: int
    """Records that were read, but come from another program."""

    lag: int
    remembered: int
    """Appends kept in memory, because they are not matched yet."""

    appends: Timing
    opened: int
    killed: int
    collections: int
    collected: int
    """Records that collections have dropped."""

    sweeps: int
    swept: int
    """Objects that sweeps have deleted."""

    pins: int
    forks: int
    side_reads: int
    refused: int
    """Chores that met another one and gave up."""

    troubles: int
    """Operations that were given up because the store did not answer in time."""

    violations: int


class SoakReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a soak. ``violations`` holds the first ones; ``figures`` counts all."""

    url: str
    run: str
    figures: Figures
    violations: tuple[Violation, ...] = ()

    @property
    def proven(self) -> bool:
        """Whether all written and read records map one to one."""
        return not self.violations

    def to_dict(self) -> dict[str, object]:
        """Everything, ready for JSON."""
        return {**msgspec.structs.asdict(self), "proven": self.proven}
