"""Linking what many tasks have uploaded, all at once."""

from stratalog.objectlog.load.bulk_commit import (
    LINK_TIMEOUT_S,
    Linked,
    forget_query,
    is_linked,
    link_staged,
    noted,
)
from stratalog.objectlog.load.bulk_upload import Batch, StagedFragment, Staging, check_query

__all__ = [
    "LINK_TIMEOUT_S",
    "Batch",
    "Linked",
    "StagedFragment",
    "Staging",
    "check_query",
    "forget_query",
    "is_linked",
    "link_staged",
    "noted",
]
