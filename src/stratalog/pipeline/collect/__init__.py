"""Collecting the logs of a herd."""

from stratalog.pipeline.collect.collect import HerdCollect, HerdCollectOptions, collect_herd
