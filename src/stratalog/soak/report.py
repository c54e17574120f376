"""What a soak has done so far, and what it has shown in the end."""

from __future__ import annotations

import msgspec

from stratalog.meter import Timing
from stratalog.soak.ledger import Violation


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of a soak."""

    elapsed_s: float
    rate: float
    """Records acknowledged per second, lately; over all of it in a report."""

    called: int
    """Records that were handed to a writer. Each is acknowledged, failed, unknown, or under way."""

    acknowledged: int
    failed: int
    unknown: int
    landed: int
    """Of the unknown ones, how many were read."""

    read: int
    others: int
    """Records that were read and are not of this soak."""

    lag: int
    remembered: int
    """Appends that are kept in memory because they are not matched yet."""

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
    """Chores that met another one and stepped back."""

    troubles: int
    """Times that the store did not answer for so long that somebody gave up."""

    violations: int


class SoakReport(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a soak. ``violations`` holds the first ones; ``figures`` counts all."""

    url: str
    run: str
    figures: Figures
    violations: tuple[Violation, ...] = ()

    @property
    def proven(self) -> bool:
        """Whether everything that was written and read maps one to one."""
        return not self.violations

    def to_dict(self) -> dict[str, object]:
        """Everything, ready for JSON."""
        return {**msgspec.structs.asdict(self), "proven": self.proven}
