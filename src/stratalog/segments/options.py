"""The options of a node's disk, with their defaults."""

from dataclasses import dataclass, fields

from stratalog.errors import Invalid

MIB = 1024 * 1024
WAL_FILE_BYTES_MIN = 128

_MAY_BE_NONE = {"major_after_minors", "merge_after_files", "merge_time_max"}


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """What a merged segment of a partition may have, besides the limits of every segment.

    Whoever drops old segments as a whole says how coarse they may become.
    """

    bytes_max: int | None = None
    time_max: int | None = None
    """The longest time between the newest entries of two segments that become one, in the unit of
    ``time_of``."""


@dataclass(frozen=True, kw_only=True)
class DiskOptions:
    """Limits of a node's disk."""

    wal_file_bytes: int = 256 * MIB
    """A WAL file is closed and flushed to segments when it reaches this size."""

    wal_files_max: int = 4
    """How many closed WAL files may wait for their flush before writes have to wait."""

    batch_bytes_max: int = 2 * MIB
    """The bytes of one batch, which is synced once. A larger write is a batch of its own."""

    write_bytes_max: int = 64 * MIB
    """The largest write."""

    queue_bytes_max: int = 64 * MIB
    """How many bytes may be queued for the WAL. Further writes wait until there is room."""

    memory_bytes_max: int = 2048 * MIB
    """The memory for entries that are not in segments yet, with what Python needs for each. Beyond
    it the WAL file is flushed before it is full, and writes wait."""

    segment_entries_max: int = 65_536
    """The most entries of a segment file."""

    segment_bytes_max: int = 64 * MIB
    """The most bytes of entries of a segment file. A larger entry has a file of its own."""

    live_share_min: float = 0.5
    """Major compaction leaves a segment alone if at least this share of it lives, by entries and
    by bytes."""

    major_after_minors: int | None = 8
    """After this many minor compactions a major one runs by itself. `None`: only on request."""

    merge_after_files: int | None = 8
    """When so many small neighbours have gathered in a partition, they are merged after a flush.
    `None`: only by a major compaction."""

    merge_time_max: int | None = None
    """The longest time between the newest entries of two segments that are merged, in the unit of
    `time_of`, unless a partition has limits of its own. `None`: any."""

    index_cache_bytes: int = 64 * MIB
    """The memory for the indexes of segments."""

    open_files_max: int = 128
    """The most segment files that are kept open for reading."""

    read_bytes: int = 1 * MIB
    """The bytes that a reader reads at a time."""

    timeout_s: float = 60.0
    """How long a write waits for room before it fails as `Full`."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in _MAY_BE_NONE:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise Invalid(f"{field.name} is a number above 0, not {value!r}", actual=value)
        if self.wal_file_bytes < WAL_FILE_BYTES_MIN:
            raise Invalid(
                f"a WAL file has at least {WAL_FILE_BYTES_MIN} bytes: one must have room for its "
                f"head and a batch, not {self.wal_file_bytes}",
                expected=WAL_FILE_BYTES_MIN,
                actual=self.wal_file_bytes,
            )
        if self.live_share_min > 1:
            raise Invalid("live_share_min is a share: above 0, at most 1")
