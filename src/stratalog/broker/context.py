"""What the handlers of requests work with."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stratalog.broker.options import Address, BrokerOptions
from stratalog.broker.wire import Shared
from stratalog.meter import Meter
from stratalog.runtime import Runtime

if TYPE_CHECKING:
    from stratalog.broker.groups import Groups
    from stratalog.broker.producer_ids import ProducerIds
    from stratalog.broker.topics import Topics
    from stratalog.segments import Disk


@dataclass(slots=True)
class Meters:
    """What the broker counts. A meter's events are requests, its bytes those of their frames."""

    requests: dict[str, Meter] = field(default_factory=dict)
    """By Kafka's name of the API."""

    traffic: Shared | None = None
    """Of the port, when it is open."""

    produced_bytes: int = 0
    produced_records: int = 0
    fetched_bytes: int = 0

    def request(self, name: str) -> Meter:
        return self.requests.get(name) or self.requests.setdefault(name, Meter())

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self.traffic.connections) if self.traffic else 0

    @property
    def connections_opened(self) -> int:
        return self.traffic.opened if self.traffic else 0

    @property
    def connections_refused(self) -> int:
        """There were as many as there may be."""
        return self.traffic.refused if self.traffic else 0

    @property
    def connections_broken(self) -> int:
        """Closed by the broker because of what came in, or did not."""
        return self.traffic.broken if self.traffic else 0

    @property
    def request_bytes(self) -> int:
        """The memory that requests take now."""
        return self.traffic.memory.used if self.traffic else 0


@dataclass(slots=True)
class BrokerContext:
    """One open broker: what it is, and what it holds."""

    options: BrokerOptions
    runtime: Runtime
    cluster_id: str
    """Drawn when the data directory was made."""

    advertised: Address
    """Where clients are told to connect."""

    disk: "Disk"
    topics: "Topics"
    groups: "Groups"
    producer_ids: "ProducerIds"
    meters: Meters = field(default_factory=Meters)

    @property
    def node_id(self) -> int:
        return self.options.node_id


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks, and how."""

    client_id: str
    """As the client calls itself; empty if it does not."""

    host: str
    """Its address, as Kafka shows it: ``/127.0.0.1``."""

    version: int
    """The version of the API that this request came in. The payload that a handler gets is of the
    newest version of its range all the same."""
