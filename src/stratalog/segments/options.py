"""What a user may set, with the defaults and limits stated."""

from __future__ import annotations

from dataclasses import dataclass, fields

from stratalog.errors import Invalid

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, kw_only=True)
class DiskOptions:
    """Limits of a node's disk."""

    wal_file_bytes: int = 256 * MIB
    """A WAL file is closed and flushed to segments when it has reached this size."""

    wal_files_max: int = 4
    """How many closed WAL files may wait for their flush before writes wait too."""

    batch_bytes_max: int = 2 * MIB
    """How much is written with one sync. A single larger write is a batch of its own."""

    write_bytes_max: int = 64 * MIB
    """The largest write."""

    queue_bytes_max: int = 64 * MIB
    """How much may wait for the sync before it. Further writes wait until there is room."""

    segment_entries_max: int = 65_536
    """How many entries a segment file holds."""

    segment_bytes_max: int = 64 * MIB
    """How many bytes of entries a segment file holds. One larger entry has a file of its own."""

    live_share_min: float = 0.5
    """A segment of which at least this share lives, by entries and by bytes, is left alone by
    major compaction."""

    major_after_minors: int | None = 8
    """After how many minor compactions a major one runs by itself. `None`: only on request."""

    index_cache_bytes: int = 64 * MIB
    """How much of the indexes of segments is kept in memory."""

    open_files_max: int = 128
    """How many segment files are kept open for reading."""

    read_bytes: int = 1 * MIB
    """How much a reader takes at a time."""

    timeout_s: float = 60.0
    """How long a write waits for room before it fails as `Full`."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "major_after_minors" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise Invalid(f"{field.name} is a number above 0, not {value!r}", actual=value)
        if self.live_share_min > 1:
            raise Invalid("live_share_min is a share: above 0, at most 1")
