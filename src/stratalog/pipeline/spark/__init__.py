"""Spark itself: its Java, settings, errors and progress, and what its tasks can reach."""

from stratalog.pipeline.spark.errors import readable_spark_errors, tidy_error, whole_errors
from stratalog.pipeline.spark.java import find_java
from stratalog.pipeline.spark.jvm import jvm_environment, launch_jvm, silence_pyspark
from stratalog.pipeline.spark.progress import OnProgress, is_remote, slots_of, watched
from stratalog.pipeline.spark.settings import (
    check_conf,
    choose_place,
    default_settings,
    site_settings,
    wants_to_hear,
)
from stratalog.pipeline.spark.tasks import (
    HERD_RECORDS_DDL,
    PICKLED_DDL,
    RECORDS_DDL,
    batch_of,
    frame_of,
    in_groups,
    in_tasks,
    pickled_batch,
    struct_of,
    unpickled,
)
from stratalog.pipeline.spark.urls import (
    absolute_url,
    below,
    check_reachable,
    is_cloud,
    without_options,
)
