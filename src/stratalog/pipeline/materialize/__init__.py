"""Merging what the logs of a herd have added into their outputs."""

from stratalog.pipeline.materialize.job import materialize
from stratalog.pipeline.materialize.merge import Merge, latest_by_key
from stratalog.pipeline.materialize.merge_job import is_fault_of_data
from stratalog.pipeline.materialize.results import (
    Materialized,
    MaterializedLog,
    MaterializeOptions,
    MaterializeProgress,
)

__all__ = [
    "MaterializeOptions",
    "MaterializeProgress",
    "Materialized",
    "MaterializedLog",
    "Merge",
    "is_fault_of_data",
    "latest_by_key",
    "materialize",
]
