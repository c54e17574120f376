"""Which record has a time. Heads say which batch may have it; only that one is decoded."""

from collections.abc import Callable, Iterable
from typing import Final

from stratalog.errors import Trimmed
from stratalog.partitions.batch import Batch, batches_in
from stratalog.partitions.compression import Undecodable
from stratalog.partitions.protocol import Fetched, PartitionLog, TimedOffset
from stratalog.partitions.records import Record, decode_records
from stratalog.runtime import Runtime

FETCH_BYTES: Final = 1 << 20
DECODED_AT_ONCE_BYTES: Final = 16 * 1024
"""A larger or compressed batch is decoded in a thread."""


async def first_at_or_after(
    log: PartitionLog, start: int, time_ms: int, runtime: Runtime
) -> TimedOffset | None:
    """The first committed record from an offset on whose time is at or after this."""

    def is_late(record: Record) -> bool:
        return record.time_ms >= time_ms

    offset = max(start, log.log_start)
    while offset < (end := log.high_watermark):
        try:
            fetched = await _fetch(log, offset)
        except Trimmed as trimmed:
            offset = trimmed.first_offset
            continue
        for batch in batches_in(fetched.parts):
            if batch.time_ms >= time_ms:
                within = range(max(offset, log.log_start), end)
                found = await _find(batch, within, _first(is_late), runtime)
                if found is not None:
                    return found
        offset = fetched.next_offset
    return None


async def with_largest_time(
    log: PartitionLog, within: range, runtime: Runtime
) -> TimedOffset | None:
    """The first committed record among those with the largest time."""
    best: TimedOffset | None = None
    offset = within.start
    while offset < within.stop:
        try:
            fetched = await _fetch(log, offset)
        except Trimmed as trimmed:
            offset = trimmed.first_offset
            continue
        for batch in batches_in(fetched.parts):
            if batch.base_offset >= within.stop:
                break
            if batch.time_ms > (best.time_ms if best else -1):
                found = await _find(batch, within, _latest, runtime)
                if found is not None and (best is None or found.time_ms > best.time_ms):
                    best = found
        offset = fetched.next_offset
    return best


async def _fetch(log: PartitionLog, offset: int) -> Fetched:
    fetched = log.fetch(offset, FETCH_BYTES)
    return await log.fetch_stored(offset, FETCH_BYTES) if fetched is None else fetched


Choose = Callable[[Iterable[Record]], Record | None]
"""It goes through the records one by one: a small batch may hold millions, compressed."""


def _first(is_wanted: Callable[[Record], bool]) -> Choose:
    return lambda records: next(filter(is_wanted, records), None)


def _latest(records: Iterable[Record]) -> Record | None:
    return max(records, key=lambda record: record.time_ms, default=None)


async def _find(
    batch: Batch, within: range, choose: Choose, runtime: Runtime
) -> TimedOffset | None:
    """A batch that cannot be decoded answers with its first offset, and the time in its head."""

    def decode() -> Record | None:
        records = decode_records(batch, batch.base_offset)
        return choose(each for each in records if each.offset in within)

    try:
        if len(batch.data) > DECODED_AT_ONCE_BYTES or batch.codec:
            record = await runtime.compute(decode)
        else:
            record = decode()
    except Undecodable:
        return TimedOffset(max(batch.base_offset, within.start), batch.time_ms, batch.leader_epoch)
    if record is None:
        return None
    return TimedOffset(record.offset, record.time_ms, batch.leader_epoch)
