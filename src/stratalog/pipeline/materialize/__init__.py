"""Merging what the logs of a herd have added into their outputs."""

from stratalog.pipeline.materialize.job import (
    Materialized,
    MaterializedLog,
    MaterializeProgress,
    materialize,
)
from stratalog.pipeline.materialize.merge import Merge, latest_by_key
from stratalog.pipeline.materialize.merge_job import MaterializeOptions, is_fault_of_data
