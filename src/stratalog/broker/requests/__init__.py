"""One handler for each API of Kafka."""

from stratalog.broker.requests.registry import Api, Registry
