"""What a partition of a topic is: record batches in, offsets out.

    PartitionLog    the protocol: append, fetch, ends, times, retention
    DiskLog         one partition on a node's disk
    KeyedLog        a map that is a function of a partition log
    Batch           the head of a record batch; check_batch checks what a client sends
    decode_records  the records in a batch; encode_batch makes one
    Producers       which batch of an idempotent producer may follow

A record batch is Kafka's, version 2. Offsets begin at 0 and are dense.
"""

from stratalog.partitions.batch import (
    DEFAULT_LIMITS,
    Batch,
    BatchFault,
    BatchLimits,
    RefusedBatch,
    batches_in,
    check_batch,
    set_append_time,
    time_of,
)
from stratalog.partitions.checkpoint_turns import CheckpointTurns
from stratalog.partitions.compression import Codec, Undecodable
from stratalog.partitions.disk_log import MERGED_SHARE, DiskLog
from stratalog.partitions.keyed_log import KeyedLog
from stratalog.partitions.look_up_time import first_at_or_after, with_largest_time
from stratalog.partitions.producers import (
    ProducerFault,
    ProducerLimits,
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
from stratalog.partitions.read_ahead import ReadAhead
from stratalog.partitions.records import NewRecord, Record, decode_records, encode_batch

__all__ = [
    "DEFAULT_LIMITS",
    "MERGED_SHARE",
    "Appended",
    "Batch",
    "BatchFault",
    "BatchLimits",
    "CheckpointTurns",
    "Codec",
    "DiskLog",
    "Fetched",
    "KeyedLog",
    "NewRecord",
    "OutOfRange",
    "PartitionLog",
    "ProducerFault",
    "ProducerLimits",
    "ProducerState",
    "Producers",
    "ReadAhead",
    "Record",
    "RefusedBatch",
    "RefusedProducer",
    "Remembered",
    "TimedOffset",
    "Undecodable",
    "batches_in",
    "check_batch",
    "decode_records",
    "encode_batch",
    "first_at_or_after",
    "set_append_time",
    "time_of",
    "with_largest_time",
]
