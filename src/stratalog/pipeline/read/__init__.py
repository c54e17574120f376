"""Reading logs on Spark: what a query reads, held while it runs, and divided among tasks."""

from stratalog.pipeline.read.dataframes import Place, pinned_herd, pinned_log, read_herd, read_log
from stratalog.pipeline.read.fetch import HERD_RECORDS, RECORDS, records_of
from stratalog.pipeline.read.log_stream import LogStream
from stratalog.pipeline.read.options import (
    PATH,
    PIN_S,
    Given,
    ReadOptions,
    StreamOptions,
    is_herd,
    microseconds_of,
    parse_read,
    parse_stream,
)
from stratalog.pipeline.read.pinned_plan import (
    PLANNING_CACHE_BYTES,
    Hold,
    Planned,
    part_of,
    plan_herd,
    plan_log,
    plan_together,
)
from stratalog.pipeline.read.splits import OPEN_COST_BYTES, SPLIT_BYTES, Part, Split, split_evenly
