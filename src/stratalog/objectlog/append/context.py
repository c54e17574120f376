"""What all parts of one writer share."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from stratalog.objectlog.options import WriterOptions
from stratalog.objectlog.stats import WriterCounters
from stratalog.runtime import Runtime
from stratalog.store import Patience, Store

BeforeLink = Callable[[int, int], Awaitable[None]]
"""What must be done before a fragment is linked. It is called while the fragment is stored, with
the offset after its last record and the sweep epoch in which its upload began."""


@dataclass(frozen=True, slots=True)
class WriterContext:
    """The log of a writer, how it writes, and what it counts."""

    store: Store
    writer: str
    options: WriterOptions
    runtime: Runtime
    counters: WriterCounters = field(default_factory=WriterCounters)
    before_link: BeforeLink | None = None

    def patience(self) -> Patience:
        return Patience(self.runtime, self.options.timeout_s)
