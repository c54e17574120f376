"""Which small segments are merged with their neighbours, dense or not. Pure.

A slow partition beside a busy one gets a segment for each WAL file, however little is in it. So
neighbours that fit into one segment are merged, once enough of them have gathered.

**What is written again.** A merged segment has at least ``growth_min`` times the bytes of its
largest source. So a byte is written again at most log(segment_bytes_max / size of its first
segment) times, to that base, however many segments come. Sources of up to ``bytes_free`` are
exempt: such a file costs more than its bytes.

**What stays.** Where ``files_min`` neighbours do not fit into one segment, they stay as they are.
So a log has at most ``files_min`` files for each ``segment_bytes_max`` of it, and a few small ones
of each size at its end.

**What is kept for longer.** Retention drops a segment as a whole, so an entry stays for as long as
the newest one that it was merged with; ``MergeLimits`` says how much longer that may be.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from stratalog.segments.format import SegmentFile
from stratalog.segments.options import DiskOptions, MergeLimits

MERGED_FILES_MAX: Final = 1024
"""The most sources of one segment, so that a record of the journal stays small."""


@dataclass(frozen=True, slots=True)
class MergeRule:
    """Which neighbours that fit into one segment are worth writing again."""

    files_min: int
    growth_min: int
    bytes_free: int
    tries_max: int
    """After so many files at which no group ends, the older ones are taken to be settled."""

    def allows(self, files: int, size: int, largest: int) -> bool:
        is_growing = largest * self.growth_min <= size
        return files >= self.files_min and (is_growing or largest <= self.bytes_free)


ON_REQUEST: Final = MergeRule(files_min=2, growth_min=2, bytes_free=0, tries_max=1 << 32)


def after_flush(files_min: int) -> MergeRule:
    """Beside the writers."""
    return MergeRule(files_min, growth_min=4, bytes_free=64 * 1024, tries_max=64)


def merges(
    files: Sequence[SegmentFile], rule: MergeRule, options: DiskOptions, limits: MergeLimits
) -> list[list[SegmentFile]]:
    """Groups of neighbours, each to become one segment. The newest must not be among the files.

    The newest files come first into a group: they are the smallest, as older ones are merged.
    """
    groups, stop, tries = [], len(files), 0
    while stop >= rule.files_min and tries < rule.tries_max:
        start = _start_of_group(files, stop, rule, options, limits)
        if start is None:
            stop -= 1
            tries += 1
        else:
            groups.append(list(files[start:stop]))
            stop, tries = start, 0
    return groups[::-1]


def merges_beside(
    files: Sequence[SegmentFile],
    rewritten: Iterable[Sequence[SegmentFile]],
    options: DiskOptions,
    limits: MergeLimits,
) -> list[list[SegmentFile]]:
    """What a major compaction merges of the files that it does not rewrite anyway."""
    taken = {file.path for group in rewritten for file in group}
    groups = []
    for is_taken, run in groupby(files, key=lambda file: file.path in taken):
        if not is_taken:
            groups += merges(list(run), ON_REQUEST, options, limits)
    return groups


def _start_of_group(
    files: Sequence[SegmentFile],
    stop: int,
    rule: MergeRule,
    options: DiskOptions,
    limits: MergeLimits,
) -> int | None:
    """Where the longest group begins that ends before ``stop`` and that the rule allows."""
    found: int | None = None
    entries = size = largest = 0
    bytes_max = options.segment_bytes_max
    if limits.bytes_max is not None:
        bytes_max = min(bytes_max, limits.bytes_max)
    times: list[int] = []
    for place in range(stop - 1, max(-1, stop - 1 - MERGED_FILES_MAX), -1):
        file = files[place]
        entries += file.entries
        size += file.size
        if entries > options.segment_entries_max or size > bytes_max:
            break
        if limits.time_max is not None:
            times = _ends([*times, *file.newest_times])
            if times and times[-1] - times[0] > limits.time_max:
                break
        largest = max(largest, file.size)
        if rule.allows(stop - place, size, largest):
            found = place
    return found


def _ends(times: Sequence[int]) -> list[int]:
    """The lowest and the highest."""
    return [min(times), max(times)] if times else []
