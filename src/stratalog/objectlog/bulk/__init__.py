"""Linking what many tasks have uploaded, all at once."""

from stratalog.objectlog.bulk.commit import (
    LINK_TIMEOUT_S,
    Linked,
    forget_query,
    is_linked,
    link_uploaded,
    noted,
)
from stratalog.objectlog.bulk.upload import Batch, BulkUpload, UploadedFragment, check_query
