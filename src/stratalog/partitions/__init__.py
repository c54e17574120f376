"""What a partition of a topic is: record batches in, offsets out.

PartitionLog    the protocol: append, fetch, ends, times, retention
Batch           the head of a record batch; check_batch checks what a client sends
decode_records  the records in a batch; encode_batch makes one
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
from stratalog.partitions.compression import Codec, Undecodable
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
from stratalog.partitions.records import NewRecord, Record, decode_records, encode_batch

__all__ = [
    "DEFAULT_LIMITS",
    "Appended",
    "Batch",
    "BatchFault",
    "BatchLimits",
    "Codec",
    "Fetched",
    "NewRecord",
    "OutOfRange",
    "PartitionLog",
    "ProducerFault",
    "ProducerState",
    "Producers",
    "Record",
    "RefusedBatch",
    "RefusedProducer",
    "Remembered",
    "TimedOffset",
    "Undecodable",
    "check_batch",
    "decode_records",
    "encode_batch",
    "set_append_time",
]
