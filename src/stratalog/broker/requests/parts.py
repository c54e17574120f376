"""What handlers share: no throttling, errors of single parts, permitted operations."""

from collections import Counter
from collections.abc import Hashable, Iterable
from datetime import timedelta
from typing import TypeVar

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i32Timedelta

from stratalog.broker.context import BrokerContext
from stratalog.broker.topics import Topic, check_topic_name
from stratalog.broker.wire import Refused, code_of
from stratalog.errors import StratalogError
from stratalog.partitions import PartitionLog

H = TypeVar("H", bound=Hashable)

NOT_THROTTLED = i32Timedelta.parse(timedelta(0))

NOT_ASKED = i32(-(2**31))
"""In place of permitted operations when a client did not ask for them."""

TOPIC_OPERATIONS = i32(sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11)))
"""What may be done with a topic, without authorization: read, write, create, delete, alter,
describe, describe and alter its settings."""

CLUSTER_OPERATIONS = i32(sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12)))
"""The same for the cluster: create, alter, describe, cluster action, describe and alter its
settings, idempotent write."""


def told(error: StratalogError) -> tuple[ErrorCode, str]:
    """The code and the words for a part of a request that failed."""
    message = error.message
    if error.hint and error.hint not in message:
        message = f"{message.rstrip('.')}. {error.hint}"
    return code_of(error), message


def repeated(keys: Iterable[H]) -> set[H]:
    """Those that are there more than once."""
    return {key for key, times in Counter(keys).items() if times > 1}


def found_topic(context: BrokerContext, name: str) -> Topic:
    """The topic of this name, or the error that Kafka has for it."""
    found = context.topics.get(check_topic_name(name))
    if found is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"There is no topic '{name}'.")
    return found


def found_partition(context: BrokerContext, name: str, number: int) -> PartitionLog:
    """A partition, or the error that Kafka has for it."""
    found = found_topic(context, name).partition(number)
    if found is None:
        raise Refused(
            ErrorCode.unknown_topic_or_partition, f"There is no partition {number} of '{name}'."
        )
    return found
