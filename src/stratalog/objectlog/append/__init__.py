"""Appending: from the records of many callers to linked fragments."""

from stratalog.objectlog.append.committer import CommitOutcome, Committer, Upload
from stratalog.objectlog.append.create import create_log
from stratalog.objectlog.append.uploader import BeforeLink
from stratalog.objectlog.append.writer import Body, LogWriter
