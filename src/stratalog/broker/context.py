"""What the handlers of requests work with."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stratalog.broker.options import Address, BrokerOptions
from stratalog.meter import Meter
from stratalog.runtime import Runtime

if TYPE_CHECKING:
    from stratalog.broker.groups import Groups
    from stratalog.broker.producer_ids import ProducerIds
    from stratalog.broker.topics import Topics


@dataclass(slots=True)
class Meters:
    """What the broker counts. A meter's events are requests, its bytes those of their frames."""

    requests: dict[str, Meter] = field(default_factory=dict)
    """By Kafka's name of the API."""

    connections: int = 0
    """Open now."""

    connections_opened: int = 0
    connections_refused: int = 0
    """More than there may be."""

    connections_broken: int = 0
    """Closed by the broker because of what came in, or did not."""

    produced_bytes: int = 0
    produced_records: int = 0
    fetched_bytes: int = 0

    request_bytes: int = 0
    """The memory that requests take now."""

    def request(self, name: str) -> Meter:
        return self.requests.get(name) or self.requests.setdefault(name, Meter())


@dataclass(slots=True)
class BrokerContext:
    """One open broker: what it is, and what it holds."""

    options: BrokerOptions
    runtime: Runtime
    cluster_id: str
    """Drawn when the data directory was made."""

    advertised: Address
    """Where clients are told to connect."""

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
