"""What is stored: one module for each kind of object, with its layout. Keep stable."""

from stratalog.objectlog.stored.cache import ByteCache
from stratalog.objectlog.stored.certified_json import open_certificate
from stratalog.objectlog.stored.compression import Compression
from stratalog.objectlog.stored.copy_note import CopyNote, copy_note_of
from stratalog.objectlog.stored.decoded_size import Oversized, read_bounded
from stratalog.objectlog.stored.fragment import (
    BUCKET_FRAGMENTS,
    RECORD_SCHEMA,
    EncodedFragment,
    Fragment,
    Numbers,
    Verify,
    decode_fragment,
    decode_items,
    encode_fragment,
    encode_sparse,
    encode_staged,
    is_relative,
    spans,
)
from stratalog.objectlog.stored.linked_mark import (
    MARK_KEY,
    LinkedMark,
    read_mark,
)
from stratalog.objectlog.stored.manifest import (
    FIRST_SEQ_NO,
    LINKED_MAX,
    MANIFEST_PATH,
    Manifest,
    check_begun,
    decode_manifest,
    encode_manifest,
    load_any_manifest,
    load_manifest,
    parse_manifest,
    taken,
)
from stratalog.objectlog.stored.names import (
    INCARNATION_LENGTH,
    UploadNames,
    check_note,
    writer_label,
)
from stratalog.objectlog.stored.object_digest import check_bytes, promised_digest, with_digest
from stratalog.objectlog.stored.ownership import Kind, is_sweepable, own
from stratalog.objectlog.stored.plan import (
    GARBAGE_PATH,
    Compaction,
    Garbage,
    PlanState,
    load_garbage,
    plan_document,
)
from stratalog.objectlog.stored.policy import (
    POLICY_CURSOR,
    POLICY_PATH,
    Live,
    Policy,
    Retention,
    Thresholds,
)
from stratalog.objectlog.stored.position import (
    FIRST_OFFSET,
    OFFSET_MAX,
    LogPosition,
    Natural,
    Span,
    check_offset,
)
from stratalog.objectlog.stored.record_sums import (
    body_views,
    bytes_of_records,
    check_sum,
    sum_of_records,
)
from stratalog.objectlog.stored.seal import (
    Fields,
    Link,
    Seal,
    as_fields,
    from_fields,
    is_being_destroyed,
    predecessor_of,
    seal_of,
    sealed,
)
from stratalog.objectlog.stored.self_describing import (
    HEADER_BYTES,
    MAGIC,
    RUN_DIGITS,
    SelfDescribed,
    decode_described,
    encode_described,
)
from stratalog.objectlog.stored.snapshot import (
    Entry,
    Snapshot,
    SnapshotPointer,
    check_adjacent,
    depth_of,
    in_base,
)
from stratalog.objectlog.stored.stored_json import (
    FORMAT,
    StoredObject,
    decode_document,
    decode_opened,
)
