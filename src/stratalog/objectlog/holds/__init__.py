"""What keeps records and objects from being deleted: cursors, pins, upload guards, policies."""

from stratalog.objectlog.holds.cursor import (
    CURSOR_PREFIX,
    Cursor,
    CursorStore,
    StoredCursor,
    cursor_path,
    legal_name,
)
from stratalog.objectlog.holds.fork_note import (
    FORK_TIMEOUT_S,
    ForkNote,
    change_fork,
    let_go,
    note_of,
    release_source,
    require_note,
    with_note,
)
from stratalog.objectlog.holds.fork_release import abort_fork, detach_fork
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
    Stage,
    StoredStage,
    list_stages,
    load_stage,
    release_stage,
    remove_stages,
    revoke_stage,
    stage_path,
)
from stratalog.objectlog.holds.wal3_hold import hold_by_cursor, let_go_of_cursor

__all__ = [
    "CURSOR_PREFIX",
    "FORK_TIMEOUT_S",
    "PIN_PREFIX",
    "Cursor",
    "CursorStore",
    "ForkNote",
    "Pin",
    "PinStore",
    "PolicyStore",
    "Retained",
    "Stage",
    "StoredCursor",
    "StoredStage",
    "abort_fork",
    "change_fork",
    "cursor_path",
    "decode_pin",
    "detach_fork",
    "hold_by_cursor",
    "legal_name",
    "let_go",
    "let_go_of_cursor",
    "list_stages",
    "load_pinned",
    "load_stage",
    "note_of",
    "pin_path",
    "read_pin",
    "release_source",
    "release_stage",
    "remove_stages",
    "require_note",
    "revoke_stage",
    "stage_path",
    "with_note",
]
