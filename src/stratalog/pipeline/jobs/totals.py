"""Sums over the ``logs`` of a job's result."""

from typing import Any


class Counted:
    """How many records all logs come to."""

    __slots__ = ()
    logs: tuple[Any, ...]

    @property
    def records(self) -> int:
        """The records of all logs."""
        return sum(each.records for each in self.logs)


class Held(Counted):
    """What all logs hold."""

    __slots__ = ()

    @property
    def num_bytes(self) -> int:
        return sum(each.num_bytes for each in self.logs)


class Dropped(Counted):
    """What went from all logs."""

    __slots__ = ()

    @property
    def bytes_before(self) -> int:
        return sum(each.bytes_before for each in self.logs)

    @property
    def bytes_after(self) -> int:
        return sum(each.bytes_after for each in self.logs)
