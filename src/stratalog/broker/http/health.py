"""Whether a broker lives, and whether it should be sent clients.

`/healthz` answers as long as the event loop turns. `/readyz` answers 503 with the reason while the
broker is opening its data, when it stops, when its disk is full or fails, and when the log of its
groups has failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus

import msgspec

from stratalog.broker.http.server import Page
from stratalog.errors import StratalogError

JSON = "application/json"


class State(StrEnum):
    """What a broker is doing with itself."""

    OPENING = "opening"
    SERVING = "serving"
    STOPPING = "stopping"


_REASONS = {
    State.OPENING: "the data directory is being opened",
    State.STOPPING: "the broker is shutting down",
}


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether clients should come, and if not, why."""

    state: State
    reasons: tuple[str, ...]

    @property
    def is_ready(self) -> bool:
        return not self.reasons


def readiness(state: State, *, log_is_down: bool, disk_failure: StratalogError | None) -> Readiness:
    """What `/readyz` says. Pure."""
    reasons = [_REASONS[state]] if state in _REASONS else []
    if disk_failure is not None and state is State.SERVING:
        reasons.append(f"the disk cannot be written: {disk_failure}")
    if log_is_down and state is State.SERVING:
        reasons.append(
            "the disk takes no more writes: look at the log, then start the broker again"
        )
    return Readiness(state, tuple(reasons))


def health_page() -> Page:
    return Page(_json({"status": "alive"}), JSON)


def readiness_page(found: Readiness) -> Page:
    body = {"ready": found.is_ready, "state": found.state.value, "reasons": found.reasons}
    status = HTTPStatus.OK if found.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    return Page(_json(body), JSON, status)


def _json(document: object) -> bytes:
    return msgspec.json.encode(document) + b"\n"
