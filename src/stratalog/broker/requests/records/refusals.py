"""Why records are not taken, as Kafka numbers it."""

from typing import Final

from kio.schema.errors import ErrorCode

from stratalog.broker.wire import code_of
from stratalog.errors import StratalogError
from stratalog.partitions import BatchFault, ProducerFault, RefusedBatch, RefusedProducer

OF_BATCH: Final = {
    BatchFault.CORRUPT: ErrorCode.corrupt_message,
    BatchFault.INVALID_RECORD: ErrorCode.invalid_record,
    BatchFault.INVALID_TIMESTAMP: ErrorCode.invalid_timestamp,
    BatchFault.TOO_LARGE: ErrorCode.message_too_large,
    BatchFault.UNSUPPORTED_FORMAT: ErrorCode.unsupported_for_message_format,
    BatchFault.UNSUPPORTED_COMPRESSION: ErrorCode.unsupported_compression_type,
    BatchFault.TRANSACTIONAL: ErrorCode.transactional_id_authorization_failed,
}
OF_PRODUCER: Final = {
    ProducerFault.INVALID_PRODUCER_EPOCH: ErrorCode.invalid_producer_epoch,
    ProducerFault.OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorCode.out_of_order_sequence_number,
}


def refusal_of(error: StratalogError) -> ErrorCode:
    """The code that a producer is told."""
    if isinstance(error, RefusedBatch):
        return OF_BATCH[error.fault]
    if isinstance(error, RefusedProducer):
        return OF_PRODUCER[error.fault]
    return code_of(error)
