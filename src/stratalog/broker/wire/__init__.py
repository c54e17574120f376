"""Kafka's wire: frames, connections, layouts, error codes."""

from stratalog.broker.wire.codes import Refused, code_of
from stratalog.broker.wire.connection import Connection, Dispatch, Shared, Slot
from stratalog.broker.wire.endpoint import Endpoint, limited
from stratalog.broker.wire.fetch import (
    FETCH_FIRST,
    FETCH_KEY,
    FETCH_LAST,
    FetchRequest,
    PartitionAnswer,
    PartitionFetch,
    TopicAnswer,
    TopicFetch,
    fetch_answer,
    read_fetch,
)
from stratalog.broker.wire.header import RequestHeader, read_header
from stratalog.broker.wire.payload import answer_frame, is_flexible, read_payload, read_request
from stratalog.broker.wire.primitives import Malformed
from stratalog.broker.wire.produce import (
    PRODUCE_ADVERTISED_FIRST,
    PRODUCE_FIRST,
    PRODUCE_KEY,
    PRODUCE_LAST,
    PartitionProduce,
    ProduceRequest,
    TopicProduce,
    produce_answer,
    read_produce,
)
