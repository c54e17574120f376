"""Kafka's wire: frames, connections, layouts, error codes."""

from stratalog.broker.wire.codes import Refused, code_of
