"""Linking what many tasks have uploaded, all at once."""

from stratalog.objectlog.load.bulk_commit import (
    LINK_TIMEOUT_S,
    Linked,
    forget_query,
    is_linked,
    link_uploaded,
    noted,
)
from stratalog.objectlog.load.bulk_upload import Batch, BulkUpload, UploadedFragment, check_query
