"""The files of a data directory: one module for each kind, with its layout. Keep stable."""

from stratalog.segments.format.checkpoint_file import (
    Checkpoint,
    checkpoint_front,
    checkpoint_path,
    live_path,
    read_checkpoint,
    read_state,
)
from stratalog.segments.format.checksum import crc32
from stratalog.segments.format.clean_close import (
    CLOSED,
    CleanClose,
    FileEnd,
    put_back_clean_close,
    read_clean_close,
    remove_clean_close,
    remove_set_aside,
    set_aside_clean_close,
    write_clean_close,
)
from stratalog.segments.format.data_directory import (
    DISK,
    DOUBT,
    FOLDERS,
    SUFFIXES,
    Identity,
    prepare_folders,
    read_identity,
    write_identity,
)
from stratalog.segments.format.entries import (
    EPOCH_MAX,
    HEAD,
    NO_ENTRIES,
    Clock,
    Entries,
    Entry,
    Heads,
    Payload,
    covered,
    cut,
    damaged,
    divided,
    ends_of,
    epoch_too_large,
    joined,
    meets,
    splits,
)
from stratalog.segments.format.frame import (
    GROWING_MAJOR,
    HEAD_BYTES,
    SEGMENT_MAJOR,
    SIZED_MAJOR,
    Frame,
    Head,
    damaged_before,
    find_frame,
    frame_at,
    frame_head,
    not_zero,
)
from stratalog.segments.format.layout import (
    NOTES,
    NOTES_NAME,
    Checkpointed,
    CheckpointFile,
    Created,
    Edit,
    Flushed,
    FlushedPart,
    Layout,
    Merged,
    Opened,
    PartitionLayout,
    Removed,
    Replaced,
    SegmentFile,
    WalFile,
    Whole,
    apply,
    check_sequence,
    decode_edit,
    encode_edit,
    lineage_of,
    no_longer_named,
)
from stratalog.segments.format.lineage import Lineage, steps_of
from stratalog.segments.format.segment_file import (
    SEGMENT_KIND,
    SEGMENT_OVERHEAD_BYTES,
    Scratch,
    SegmentContent,
    SegmentIndex,
)
from stratalog.segments.format.set_hooks import decode_set, encode_set
from stratalog.segments.format.wal_file import (
    WAL_KIND,
    Batch,
    Section,
    batch_parts,
    batches,
    batches_anywhere,
    described_batches,
    wal_path,
)
