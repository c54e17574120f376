"""Spark itself: its Java, settings, errors and progress, and what its tasks can reach."""

from stratalog.pipeline.spark.errors import (
    readable_spark_errors,
    telling_line,
    tidy_error,
    whole_errors,
)
from stratalog.pipeline.spark.frames import HERD_RECORDS_DDL, RECORDS_DDL, frame_of
from stratalog.pipeline.spark.java import find_java
from stratalog.pipeline.spark.progress import OnTasks, is_remote, slots_of, watched
from stratalog.pipeline.spark.settings import (
    check_conf,
    choose_place,
    cores_here,
    default_settings,
    memory_bytes_here,
    site_settings,
    wants_to_hear,
)
from stratalog.pipeline.spark.urls import (
    absolute_url,
    below,
    check_reachable,
    is_cloud,
    without_options,
)

__all__ = [
    "HERD_RECORDS_DDL",
    "RECORDS_DDL",
    "OnTasks",
    "absolute_url",
    "below",
    "check_conf",
    "check_reachable",
    "choose_place",
    "cores_here",
    "default_settings",
    "find_java",
    "frame_of",
    "is_cloud",
    "is_remote",
    "memory_bytes_here",
    "readable_spark_errors",
    "site_settings",
    "slots_of",
    "telling_line",
    "tidy_error",
    "wants_to_hear",
    "watched",
    "whole_errors",
    "without_options",
]
