"""The broker: one node, any published Kafka client.

    Broker          one open broker: ``async with Broker.open(options) as broker: broker.address``
    BrokerOptions   where it keeps its data, where it listens, and its limits
    configure       options from the command line, the environment and a file

``stratalog serve`` is this as a command.
"""

from stratalog.broker.broker import Broker
from stratalog.broker.config import Configuration, configure
from stratalog.broker.options import Address, BrokerOptions

__all__ = ["Address", "Broker", "BrokerOptions", "Configuration", "configure"]
