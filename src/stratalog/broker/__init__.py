"""The broker: one node, any published Kafka client.

BrokerOptions   where it keeps its data, where it listens, and its limits
"""

from stratalog.broker.options import Address, BrokerOptions

__all__ = ["Address", "BrokerOptions"]
