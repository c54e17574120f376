"""The options of a broker, with their defaults.

Each has one name: ``request_bytes_max`` here, ``STRATALOG_REQUEST_BYTES_MAX`` in the environment,
``request_bytes_max`` in the TOML file and ``--request-bytes-max`` on the command line.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from stratalog.errors import Invalid

KIB = 1024
MIB = 1024 * KIB
HOUR_MS = 3_600_000

_MAY_BE_NONE = {"advertise", "http", "retention_ms", "retention_bytes"}
_MAY_BE_ZERO = {"node_id", "group_initial_delay_ms", "group_session_ms_min"}


class Address(str):
    """A host and a port, as ``host:port``, with brackets around an IPv6 host."""

    __slots__ = ()

    def __new__(cls, host: str, port: int) -> Self:
        return super().__new__(cls, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")

    def __getnewargs__(self) -> tuple[str, int]:  # type: ignore[override]  # what made it
        return self.host, self.port

    @property
    def host(self) -> str:
        return self.rpartition(":")[0].removeprefix("[").removesuffix("]")

    @property
    def port(self) -> int:
        return int(self.rpartition(":")[2])

    @classmethod
    def parse(cls, text: str) -> Self:
        """``host:port`` or ``[host]:port``; port 0 chooses a free one."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
            raise Invalid(
                f"{text!r} is not an address",
                hint="Write it as HOST:PORT, for instance 127.0.0.1:9092.",
                actual=text,
            )
        return cls(host, int(port))


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """Where a broker keeps its data, where it listens, and its limits."""

    data: Path
    """The data directory. It is made if it is missing. One broker at a time may use it."""

    listen: str = "127.0.0.1:9092"
    """Where Kafka clients connect. Port 0 chooses a free one. Nothing but loopback is safe without
    a network that you trust: there is no authentication."""

    http: str | None = "127.0.0.1:9644"
    """Where `/metrics`, `/healthz` and `/readyz` are served. `None`: nowhere."""

    advertise: str | None = None
    """The address that clients are told to connect to. `None`: where the broker listens."""

    node_id: int = 0
    """The number of this broker, as clients see it."""

    auto_create: bool = True
    """Whether a topic is created when a client asks for one that is not there."""

    default_partitions: int = 1
    """The partitions of a topic that is created without a number of them."""

    message_bytes_max: int = MIB + 12
    """The largest record batch of a topic, unless its `max.message.bytes` says otherwise."""

    retention_ms: int | None = 168 * HOUR_MS
    """How long records stay, unless the topic's `retention.ms` says otherwise. `None`: for ever.
    Segments go as a whole, so a record of a slow partition may stay an eighth longer."""

    retention_bytes: int | None = None
    """How many bytes a partition keeps at least, unless `retention.bytes` of the topic says
    otherwise. `None`: any number."""

    retention_check_ms: int = 60_000
    """How often retention looks for records to remove."""

    connections_max: int = 20_000
    """The most clients at a time. Further ones are closed at once."""

    idle_ms_max: int = 600_000
    """A connection that sends nothing and waits for nothing is closed after this time, also if its
    client leaves answers unread."""

    frame_ms_max: int = 30_000
    """A request must have arrived whole this long after its first byte. It may take longer while at
    least 1 MiB of it comes in this time, unless other connections wait for memory."""

    request_bytes_max: int = 100 * MIB
    """The largest request. A connection that announces a larger one is closed."""

    request_memory_bytes: int = 256 * MIB
    """The memory for requests that are arriving or being handled, of all connections together.
    Beyond it connections wait their turn."""

    in_flight_max: int = 64
    """The requests of one connection that may be handled at a time. Further ones wait unread."""

    unsent_bytes_max: int = 4 * MIB
    """A connection whose client leaves this many bytes of answers unread is not read from."""

    fetch_bytes_max: int = 55 * MIB
    """The most bytes of records in the answer to one fetch, whatever the client asks for."""

    memory_bytes: int = 512 * MIB
    """The memory for recent records, from which consumers at the tail are served. When the disk is
    too slow to make room in it, producers wait."""

    shutdown_ms: int = 10_000
    """How long a clean shutdown may take: requests in flight are answered, then all is on the disk.
    What is acknowledged is on the disk in any case."""

    group_session_ms_min: int = 1_000
    """The shortest session timeout that a member of a group may ask for."""

    group_session_ms_max: int = 1_800_000
    """The longest session timeout that a member of a group may ask for."""

    group_initial_delay_ms: int = 500
    """How long the first join of an empty group waits for others, so that they share one
    rebalance. 0: not at all."""

    group_members_max: int = 10_000
    """The most members of one group."""

    offsets_retention_ms: int = 168 * HOUR_MS
    """How long the offsets of a group stay after its last member has left."""

    offset_metadata_bytes_max: int = 4 * KIB
    """The largest note that a client may put beside a committed offset."""

    producers_max: int = 10_000
    """How many idempotent producers one partition remembers. Beyond it the one that has been
    silent longest is forgotten."""

    producer_expiry_ms: int = 24 * HOUR_MS
    """An idempotent producer is forgotten when it has been silent for this long."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int or (field.name in _MAY_BE_NONE and isinstance(value, int)):
                _check_number(field.name, value)
        for name in ("listen", "http", "advertise"):
            text = getattr(self, name)
            if text is not None:
                Address.parse(text)


def _check_number(name: str, value: object) -> None:
    least = 0 if name in _MAY_BE_ZERO else 1
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Invalid(f"{name} is a whole number from {least}, not {value!r}", actual=value)
