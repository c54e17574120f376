"""Checking a herd on Spark: scrub, verify, and the table of what they found."""

from stratalog.pipeline.check.audit import load_whole_audit, read_audit
from stratalog.pipeline.check.findings import Finding, describe
from stratalog.pipeline.check.scrub import HerdScrubOptions, scrub_herd
from stratalog.pipeline.check.scrub_results import HerdScrub, LogScrub
from stratalog.pipeline.check.verify import HerdVerify, HerdVerifyOptions, verify_herd
