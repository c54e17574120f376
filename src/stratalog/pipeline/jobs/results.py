"""What a job came to: in each log a value or an error, which does not stop the others; in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stratalog.errors import NotFound, StratalogError
from stratalog.objectlog.stored import MANIFEST_PATH
from stratalog.pipeline.jobs.logs import LogRef
from stratalog.store import Usage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Trouble:
    """A log whose part of a job failed, and why."""

    log: str
    """Its name, or its id if that is all that is known."""

    error: StratalogError

    def __str__(self) -> str:
        return f"the log {self.log}: {self.error}"


@dataclass(frozen=True, slots=True)
class LogResult(Generic[T]):
    ref: LogRef
    value: T | None = None
    error: StratalogError | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the log itself was dropped."""
        if not isinstance(self.error, NotFound):
            return False
        path = self.error.path or ""
        return path.endswith(MANIFEST_PATH) or path.startswith("catalogue/")

    @property
    def trouble(self) -> Trouble | None:
        """The error, unless the log was dropped."""
        if self.error is None or self.is_gone:
            return None
        return Trouble(self.ref.label, self.error)


@dataclass(frozen=True, slots=True)
class LogResults(Generic[T]):
    """What a job came to in many logs, in their order, and what the store was asked for."""

    results: tuple[LogResult[T], ...]
    usage: Usage

    @classmethod
    def joined(cls, parts: Sequence[LogResults[T]]) -> LogResults[T]:
        results = tuple(result for part in parts for result in part.results)
        return cls(results, sum((part.usage for part in parts), Usage()))

    @property
    def values(self) -> list[T]:
        return [each.value for each in self.results if each.value is not None]

    @property
    def gone(self) -> int:
        return sum(each.is_gone for each in self.results)

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        return tuple(filter(None, (each.trouble for each in self.results)))


class Counted:
    __slots__ = ()
    logs: tuple[Any, ...]

    @property
    def records(self) -> int:
        """The records of all logs."""
        return sum(each.records for each in self.logs)


class Held(Counted):
    __slots__ = ()

    @property
    def num_bytes(self) -> int:
        return sum(each.num_bytes for each in self.logs)


class Dropped(Counted):
    __slots__ = ()

    @property
    def bytes_before(self) -> int:
        return sum(each.bytes_before for each in self.logs)

    @property
    def bytes_after(self) -> int:
        return sum(each.bytes_after for each in self.logs)
