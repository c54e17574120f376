"""Appending: from the records of many callers to linked fragments."""

from stratalog.objectlog.append.committer import Committer, Outcome, Upload
from stratalog.objectlog.append.create import create_log
from stratalog.objectlog.append.uploader import Beside
from stratalog.objectlog.append.writer import Body, LogWriter

__all__ = [
    "Beside",
    "Body",
    "Committer",
    "LogWriter",
    "Outcome",
    "Upload",
    "create_log",
]
