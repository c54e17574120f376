"""Copying a partition from one disk to another."""

from stratalog.segments.transfer.copy_partition import (
    TransferOptions,
    TransferReport,
    receive_partition,
    send_partition,
)
from stratalog.segments.transfer.transports import MemoryTransport, StreamTransport, Transport
