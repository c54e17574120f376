"""Merging what the logs of a herd have added into their outputs."""

from stratalog.pipeline.materialize.job import (
    MaterializeOptions,
    MaterializeProgress,
    materialize,
)
from stratalog.pipeline.materialize.materialized_logs import Materialized, MaterializedLog
from stratalog.pipeline.materialize.merge import Merge, latest_by_key
from stratalog.pipeline.materialize.merge_job import is_fault_of_data
