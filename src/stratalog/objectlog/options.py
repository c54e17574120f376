"""What a user may set, with the defaults and limits stated.

Sizes of records count the body and 16 bytes for its offset and time.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from stratalog.errors import Invalid
from stratalog.objectlog.stored import Compression, Verify

KIB = 1024
MIB = 1024 * KIB
RECORD_OVERHEAD_BYTES = 16
NUMBERS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "int | None": (int, type(None)),
}
LONGEST_S = 86_400.0
SCRUB_PROCESSES_MAX = 256


@dataclass(frozen=True, kw_only=True)
class _Options:
    def _check(self, *at_least_1: str) -> None:
        """The rules that several kinds of options share. Text for a number is refused first."""
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if str(field.type) in NUMBERS and type(value) not in NUMBERS[str(field.type)]:
                raise _illegal(f"{name} is a number, not {value!r}")
            if name in at_least_1:
                _require(value is None or value >= 1, f"{name} is at least 1")
            elif name == "timeout_s":
                _require(value > 0, "timeout_s is positive")
            elif name == "interval_s":
                _require(0 <= value <= LONGEST_S, "interval_s is 0 to a day")
            elif name == "compression":
                _require(value in ("zstd", "snappy", "none"), "an unknown compression")


@dataclass(frozen=True, kw_only=True)
class WriterOptions(_Options):
    """How a writer batches, waits and gives up."""

    on_fenced: Literal["raise", "reopen"] = "raise"
    """When another writer took over: stop, or take a new incarnation and send what is left."""

    when_full: Literal["wait", "raise"] = "wait"
    """When the queue is full: `append` waits, or raises `Full`. `submit` always raises."""

    fragment_bytes: int = 1 * MIB
    """A fragment is closed when its records reach this size. Under light load it is smaller."""

    record_bytes_max: int = 16 * MIB
    """The largest record."""

    batch_bytes_max: int = 64 * MIB
    """The largest `append_many`. It becomes at most `manifest_fragments_max` fragments."""

    queue_bytes_max: int = 64 * MIB
    """How much may wait to be put into fragments."""

    queue_records_max: int = 1_000_000
    """How many records may wait to be put into fragments."""

    uploads_max: int = 16
    """How many fragments may be uploaded but not yet linked at one time."""

    manifest_fragments_max: int = 8
    """How many fragments one manifest may link."""

    interval_s: float = 0.0
    """At least this long between two small fragments and between two manifests: caps the requests
    per second where money matters more than latency. 0 writes at once. It also caps the
    throughput at `manifest_fragments_max` × `fragment_bytes` an interval, and `flush` and `close`
    wait for it."""

    timeout_s: float = 60.0
    """How long to go on when the store does not answer. Then an append fails as `Unavailable` if
    it did not happen, and as `Unknown` if that cannot be known."""

    compression: Compression = "zstd"
    """How bodies are compressed inside of a fragment, if a sample shows that there is a gain."""

    rollup_entries: int = 12
    """How many entries of one kind the root collects before they move into a snapshot."""

    snapshot_entries_max: int = 64
    """How many entries one snapshot holds."""

    def __post_init__(self) -> None:
        self._check(
            "fragment_bytes",
            "record_bytes_max",
            "batch_bytes_max",
            "queue_bytes_max",
            "queue_records_max",
        )
        _require(self.on_fenced in ("raise", "reopen"), 'on_fenced is "raise" or "reopen"')
        _require(self.when_full in ("wait", "raise"), 'when_full is "wait" or "raise"')
        _require(1 <= self.manifest_fragments_max <= 16, "manifest_fragments_max is 1 to 16")
        _require(
            self.uploads_max >= self.manifest_fragments_max,
            f"uploads_max ({self.uploads_max}) is at least manifest_fragments_max"
            f" ({self.manifest_fragments_max}); lower both",
        )
        _require(2 <= self.rollup_entries <= 16, "rollup_entries is 2 to 16")
        _require(
            self.rollup_entries <= self.snapshot_entries_max <= 4096,
            "snapshot_entries_max is rollup_entries to 4096",
        )


@dataclass(frozen=True, kw_only=True)
class ReaderOptions(_Options):
    """How a reader fetches, checks and keeps."""

    verify: Verify = True
    """What is checked of each fragment. `True`: its bytes, by the digest in its entry, or its
    records where an entry has none, as those of format 1.0. `"records"`: both; only this notices
    that somebody has changed records and their digest. `False`: nothing."""

    prefetch_fragments: int = 8
    """How many fragments iteration reads ahead."""

    prefetch_bytes: int = 64 * MIB
    """How many bytes iteration reads ahead."""

    cache_bytes: int = 32 * MIB
    """How many bytes of immutable objects are kept in memory."""

    poll_s_min: float = 0.05
    """How long `follow` waits before it looks again, after it has just seen something new."""

    poll_s_max: float = 1.0
    """How long it waits when nothing has come for a while."""

    timeout_s: float = 60.0
    """How long to go on when the store does not answer; then `Unavailable`."""

    def __post_init__(self) -> None:
        self._check("prefetch_fragments", "prefetch_bytes")
        _require(
            type(self.verify) is bool or self.verify == "records",
            f'verify is True, False or "records", not {self.verify!r}',
        )
        _require(self.cache_bytes >= 0, "cache_bytes is not negative")
        _require(
            0 < self.poll_s_min <= self.poll_s_max <= LONGEST_S,
            "poll_s_min is positive and at most poll_s_max, which is at most a day",
        )


@dataclass(frozen=True, kw_only=True)
class CollectorOptions(_Options):
    """How a collection waits and gives up."""

    interval_s: float = 5.0
    """How long after publishing the deletions begin: a courtesy to readers that have just found
    what goes. One that is slower gets `Trimmed`."""

    attempts_max: int = 5
    """How often `collect` plans anew when a cursor or the tree changes meanwhile."""

    timeout_s: float = 60.0
    """How long to go on when the store does not answer; then `Unavailable` or `Unknown`. The next
    run goes on where this one stopped."""

    older_manifest: bool = False
    """Go on although cursors or pins show that an older manifest was put back: on purpose."""

    def __post_init__(self) -> None:
        self._check("attempts_max")


@dataclass(frozen=True, kw_only=True)
class CompactOptions(_Options):
    """What a compaction rewrites, and how it waits and gives up."""

    live_share_min: float = 0.5
    """Fragments of which less than this share lives are rewritten; others stay as they are, with
    their dead records. At 1 every dead record goes."""

    fragment_bytes: int = 8 * MIB
    """About how large a rewritten fragment becomes at most."""

    groups_max: int = 4
    """How many fragments are rewritten at the same time."""

    compression: Compression = "zstd"
    """How bodies are compressed inside of a fragment, if a sample shows that there is a gain."""

    attempts_max: int = 5
    """How often a compaction plans anew when the tree changes meanwhile; then `Conflict`."""

    interval_s: float = 5.0
    """How long after publishing the deletions begin: a courtesy to readers that have just found
    what goes."""

    timeout_s: float = 60.0
    """How long to go on when the store does not answer; then `Unavailable` or `Unknown`."""

    def __post_init__(self) -> None:
        self._check("groups_max", "attempts_max")
        _require(0 < self.live_share_min <= 1, "live_share_min is above 0, up to 1")
        _require(1 <= self.fragment_bytes <= 256 * MIB, "fragment_bytes is 1 to 256 MiB")


@dataclass(frozen=True, kw_only=True)
class SweepOptions(_Options):
    """How much a sweep holds in memory, and when it gives up."""

    candidates_max: int = 100_000
    """How many objects one round may find. If there are more, another round follows."""

    timeout_s: float = 60.0
    """How long to go on when the store does not answer; then `Unavailable` or `Unknown`. Another
    sweep finds what this one left."""

    def __post_init__(self) -> None:
        self._check("candidates_max")


@dataclass(frozen=True, kw_only=True)
class ScrubOptions(_Options):
    """How a scrub reads, and how much of the machine it may use."""

    processes: int | None = None
    """How many processes hash beside this one; 0 hashes in this one. By default one for each core
    if the log is large and other processes can open its store by URL, else 0. With the extra
    ``fast`` it is 0 on up to eight cores, unless fragments are small: threads do it then. Without,
    they could not, because hashing small records keeps the interpreter to itself."""

    bodies: bool = True
    """Read and hash every record. Without it, fragments are only looked for and their size is
    compared."""

    fragments_max: int = 64
    """How many fragments are being read or hashed at one time, in all processes."""

    bytes_max: int = 64 * MIB
    """How many bytes of fragments are being read or hashed at one time, as they are stored."""

    damages_max: int = 100_000
    """When so many damages were found, the scrub stops there. It can be resumed."""

    timeout_s: float = 60.0
    """How long to go on when the store does not answer; then `Unavailable`."""

    def __post_init__(self) -> None:
        self._check("fragments_max", "bytes_max", "damages_max")
        _require(type(self.bodies) is bool, f"bodies is True or False, not {self.bodies!r}")
        _require(
            self.processes is None or 0 <= self.processes <= SCRUB_PROCESSES_MAX,
            f"processes is 0 to {SCRUB_PROCESSES_MAX}",
        )


@dataclass(frozen=True, kw_only=True)
class CopyOptions(_Options):
    """How much a copy has under way, and how long it holds its source."""

    fragments_max: int = 16
    """How many fragments may be read or stored but not yet linked at one time."""

    bytes_max: int = 64 * MIB
    """How many bytes of fragments, as they are stored. One fragment may be larger."""

    pin_expiry_s: float = 86_400.0
    """When a collection of the source may release the copy's pin there, should the copy die. It is
    renewed as long as the copy goes on."""

    timeout_s: float = 60.0
    """How long to go on when a store does not answer; then `Unavailable` or `Unknown`. The same
    copy, called again, goes on where this one stopped."""

    def __post_init__(self) -> None:
        self._check("fragments_max", "bytes_max")
        _require(
            0 < self.pin_expiry_s <= 365 * LONGEST_S, "pin_expiry_s is positive, at most a year"
        )


@dataclass(frozen=True, kw_only=True)
class Limits(_Options):
    """Where a scan ends. The first fragment is always given, so that a reader makes progress."""

    max_files: int | None = None
    max_bytes: int | None = None
    max_records: int | None = None
    to_offset: int | None = None
    """No fragment that starts at or after this offset."""

    to_timestamp_us: int | None = None
    """No fragment that was appended at or after this time."""

    def __post_init__(self) -> None:
        self._check("max_files", "max_bytes", "max_records")


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise _illegal(rule)


def _illegal(rule: str) -> Invalid:
    return Invalid(f"not a legal option: {rule}", hint="docs/limits.md has each with its default.")
