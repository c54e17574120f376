"""What a log must do on every store, as tests that any store can inherit.

    class TestLogOnMyStore(LogConformance):
        async def make_store(self) -> Store:
            return MyStore(...)          # fresh and empty

Each test is a statement about the log as its users see it, and runs its own event loop. The
numbers in brackets are those of the behaviours that this project promises. ``appenders`` and
``alternations`` say how hard the races are; lower them for a store that is slow.
"""

from stratalog.testing.reading_conformance import ReadingConformance
from stratalog.testing.writing_conformance import WritingConformance


class LogConformance(WritingConformance, ReadingConformance):
    """Inherit, and say how to make a store."""

    _timeout_s = 120.0
