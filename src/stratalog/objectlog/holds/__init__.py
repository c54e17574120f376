"""What keeps records and objects from being deleted: cursors, pins, upload guards, policies."""

from stratalog.objectlog.holds.cursor import (
    CURSOR_PREFIX,
    Cursor,
    CursorStore,
    StoredCursor,
    cursor_path,
    decode_cursor,
)
from stratalog.objectlog.holds.fork_note import (
    FORK_TIMEOUT_S,
    ForkNote,
    abort_fork,
    change_fork,
    detach_fork,
    note_of,
    require_note,
)
from stratalog.objectlog.holds.hold_names import legal_name
from stratalog.objectlog.holds.pin import Pin, PinStore
from stratalog.objectlog.holds.policy_store import PolicyStore, Retained
from stratalog.objectlog.holds.stored_pin import (
    PIN_PREFIX,
    decode_pin,
    load_pinned,
    pin_path,
    read_pin,
)
from stratalog.objectlog.holds.upload_guard import (
    UPLOAD_GUARD_PREFIX,
    StoredUploadGuard,
    UploadGuard,
    UploadGuardStore,
    decode_upload_guard,
)
from stratalog.objectlog.holds.wal3_hold import hold_by_cursor, release_cursor_hold

Stage = UploadGuard
"""The old name."""
