"""One handler for each API of Kafka."""

from stratalog.broker.requests.all_apis import served
from stratalog.broker.requests.dispatch import Dispatcher
from stratalog.broker.requests.registry import Api, Registry
