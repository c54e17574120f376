"""Appending: from the records of many callers to linked fragments."""

from stratalog.objectlog.append.committer import CommitOutcome, Committer, Upload
from stratalog.objectlog.append.context import BeforeLink, WriterContext
from stratalog.objectlog.append.create import create_log
from stratalog.objectlog.append.writer import Body, LogWriter
