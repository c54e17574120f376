"""A log that a job could not do, which does not stop the others."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.errors import StratalogError


@dataclass(frozen=True, slots=True)
class Trouble:
    """A log whose part of a job failed, and why."""

    log: str
    """Its name, or its id if that is all that is known."""

    error: StratalogError

    def __str__(self) -> str:
        return f"the log {self.log}: {self.error}"
