"""The kit with which this library is tested, for those who build on it.

    StoreConformance, LogConformance    subclass them to test a store of your own
    PartitionLogConformance             the same for a partition of a topic
    MemoryPartitionLog                  one in memory, whose commits a test may hold
    simulate, Simulation                run asyncio code in virtual time, from a seed
    FaultyStore, Faults, Crashed        a store that behaves as badly as its contract allows
    SimulatedFiles, PowerLost           a node's disk that loses power, fails and fills up
    DelayedStore, Latency               a store with the latencies of a distant one
    History, check_appends              was every acknowledged append kept, once, in order?

The conformance classes need pytest (``pip install 'stratalog[testing]'``), those of partitions
``stratalog[broker]`` too. They are loaded when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from stratalog.testing.delays import S3_GET, S3_PUT, DelayedStore, Latency
from stratalog.testing.disk_faults import FileCall, PowerLost, SimulatedFiles
from stratalog.testing.faults import Crashed, Faults, FaultyStore, StoreCall
from stratalog.testing.history import (
    Append,
    History,
    HistoryViolation,
    Operation,
    Placed,
    Read,
    Row,
    Seen,
    check_appends,
)
from stratalog.testing.loop import Deadlock, LimitExceeded, SimulatedLoop, SimulationError
from stratalog.testing.simulation import Node, SimulatedRuntime, Simulation, Trace, simulate

if TYPE_CHECKING:
    from stratalog.testing.log_conformance import LogConformance
    from stratalog.testing.memory_partition_log import MemoryPartitionLog
    from stratalog.testing.partition_conformance import PartitionLogConformance
    from stratalog.testing.store_conformance import StoreConformance

__all__ = [
    "S3_GET",
    "S3_PUT",
    "Append",
    "Crashed",
    "Deadlock",
    "DelayedStore",
    "Faults",
    "FaultyStore",
    "FileCall",
    "History",
    "HistoryViolation",
    "Latency",
    "LimitExceeded",
    "LogConformance",
    "MemoryPartitionLog",
    "Node",
    "Operation",
    "PartitionLogConformance",
    "Placed",
    "PowerLost",
    "Read",
    "Row",
    "Seen",
    "SimulatedFiles",
    "SimulatedLoop",
    "SimulatedRuntime",
    "Simulation",
    "SimulationError",
    "StoreCall",
    "StoreConformance",
    "Trace",
    "check_appends",
    "simulate",
]

_LOADED_WHEN_ASKED_FOR = {
    "LogConformance": "stratalog.testing.log_conformance",
    "MemoryPartitionLog": "stratalog.testing.memory_partition_log",
    "PartitionLogConformance": "stratalog.testing.partition_conformance",
    "StoreConformance": "stratalog.testing.store_conformance",
}


def __getattr__(name: str) -> object:
    if name in _LOADED_WHEN_ASKED_FOR:
        return getattr(import_module(_LOADED_WHEN_ASKED_FOR[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
