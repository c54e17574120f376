"""The options of `serve`. Each is a field of ``BrokerOptions``, whose defaults count.

None means that the command line does not say it, so that the environment and the file may.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from stratalog.cli.groups import option

TOPICS: Any = {"rich_help_panel": "Topics"}
LIMITS: Any = {"rich_help_panel": "Limits"}
GROUPS: Any = {"rich_help_panel": "Groups and producers"}


@dataclass(frozen=True, slots=True)
class Places:
    data: Path | None = option(
        "The data directory. One broker at a time.", metavar="DIR", show_default=False
    )
    listen: str | None = option(
        "Where Kafka clients connect. Port 0: a free one.",
        metavar="HOST:PORT",
        show_default="127.0.0.1:9092",
    )
    http: str | None = option(
        "Where /metrics, /healthz and /readyz are. none: nowhere.",
        metavar="HOST:PORT",
        show_default="127.0.0.1:9644",
    )
    advertise: str | None = option(
        "The address that clients are told.", metavar="HOST:PORT", show_default="where it listens"
    )
    node_id: int | None = option(
        "The number of this broker, as clients see it.", metavar="N", show_default="0"
    )


@dataclass(frozen=True, slots=True)
class TopicFlags:
    auto_create: bool | None = option(
        "Create a topic when a client asks for it.",
        "--auto-create/--no-auto-create",
        metavar="",
        show_default="yes",
        **TOPICS,
    )
    default_partitions: int | None = option(
        "Partitions of a topic made without.", metavar="N", show_default="1", **TOPICS
    )
    message_bytes_max: int | None = option(
        "The largest record batch.", metavar="BYTES", show_default="1048588", **TOPICS
    )
    retention_ms: str | None = option(
        "How long records stay. none: for ever.", metavar="MS", show_default="604800000", **TOPICS
    )
    retention_bytes: str | None = option(
        "How much a partition keeps. none: any number of bytes.",
        metavar="BYTES",
        show_default="none",
        **TOPICS,
    )
    retention_check_ms: int | None = option(
        "How often retention looks for records to remove.",
        metavar="MS",
        show_default="60000",
        **TOPICS,
    )


@dataclass(frozen=True, slots=True)
class Limits:
    connections_max: int | None = option(
        "The most clients at a time.", metavar="N", show_default="20000", **LIMITS
    )
    idle_ms_max: int | None = option(
        "Close a silent connection then.", metavar="MS", show_default="600000", **LIMITS
    )
    frame_ms_max: int | None = option(
        "How long a request may take to arrive.", metavar="MS", show_default="30000", **LIMITS
    )
    request_bytes_max: int | None = option(
        "The largest request.", metavar="BYTES", show_default="104857600", **LIMITS
    )
    request_memory_bytes: int | None = option(
        "Memory for requests, of all connections together.",
        metavar="BYTES",
        show_default="268435456",
        **LIMITS,
    )
    in_flight_max: int | None = option(
        "Requests of a connection at a time.", metavar="N", show_default="64", **LIMITS
    )
    unsent_bytes_max: int | None = option(
        "Unread answers with which a client is not read from.",
        metavar="BYTES",
        show_default="4194304",
        **LIMITS,
    )
    fetch_bytes_max: int | None = option(
        "The most records in one answer.", metavar="BYTES", show_default="57671680", **LIMITS
    )
    memory_bytes: int | None = option(
        "Memory for recent records.", metavar="BYTES", show_default="536870912", **LIMITS
    )
    shutdown_ms: int | None = option(
        "How long a clean end may take.", metavar="MS", show_default="10000", **LIMITS
    )


@dataclass(frozen=True, slots=True)
class GroupFlags:
    group_session_ms_min: int | None = option(
        "The shortest session timeout of a member.", metavar="MS", show_default="1000", **GROUPS
    )
    group_session_ms_max: int | None = option(
        "The longest session timeout of a member.", metavar="MS", show_default="1800000", **GROUPS
    )
    group_initial_delay_ms: int | None = option(
        "How long the first join waits for others.", metavar="MS", show_default="500", **GROUPS
    )
    group_members_max: int | None = option(
        "The most members of a group.", metavar="N", show_default="10000", **GROUPS
    )
    offsets_retention_ms: int | None = option(
        "How long offsets stay when all members have left.",
        metavar="MS",
        show_default="604800000",
        **GROUPS,
    )
    offset_metadata_bytes_max: int | None = option(
        "The largest note beside an offset.", metavar="BYTES", show_default="4096", **GROUPS
    )
    producers_max: int | None = option(
        "Idempotent producers that a partition remembers.",
        metavar="N",
        show_default="10000",
        **GROUPS,
    )
    producer_expiry_ms: int | None = option(
        "Forget a silent producer after this.", metavar="MS", show_default="86400000", **GROUPS
    )


@dataclass(frozen=True, slots=True)
class ProcessFlags:
    log_format: Literal["text", "json"] | None = option(
        "How the log is written, to standard error.", show_default="text"
    )
    log_level: Literal["debug", "info", "warning", "error"] | None = option(
        "What is logged.", show_default="info"
    )


@dataclass(frozen=True, slots=True)
class Flags:
    """All of them, as ``stratalog.broker.config`` takes them."""

    places: Places
    topics: TopicFlags
    limits: Limits
    groups: GroupFlags
    process: ProcessFlags

    def given(self) -> dict[str, object]:
        parts = (self.places, self.topics, self.limits, self.groups, self.process)
        return {name: value for part in parts for name, value in asdict(part).items()}
