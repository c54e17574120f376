"""What a partition of a topic is: record batches in, offsets out.

PartitionLog    the protocol: append, fetch, ends, times, retention
Batch           the head of a record batch; check_batch checks what a client sends
Producers       which batch of an idempotent producer may follow
"""

from stratalog.partitions.batch import (
    DEFAULT_LIMITS,
    Batch,
    BatchFault,
    BatchLimits,
    RefusedBatch,
    check_batch,
    set_append_time,
)
from stratalog.partitions.producers import (
    ProducerFault,
    Producers,
    ProducerState,
    RefusedProducer,
    Remembered,
)
from stratalog.partitions.protocol import (
    Appended,
    Fetched,
    OutOfRange,
    PartitionLog,
    TimedOffset,
)

__all__ = [
    "DEFAULT_LIMITS",
    "Appended",
    "Batch",
    "BatchFault",
    "BatchLimits",
    "Fetched",
    "OutOfRange",
    "PartitionLog",
    "ProducerFault",
    "ProducerState",
    "Producers",
    "RefusedBatch",
    "RefusedProducer",
    "Remembered",
    "TimedOffset",
    "check_batch",
    "set_append_time",
]
