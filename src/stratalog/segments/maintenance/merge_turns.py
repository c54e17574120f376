"""When small segments are merged: after a flush, some partitions at a time.

A flush gives a segment to each partition that was written. It tells which these are; those with
enough segments wait here for their turn. So a log that never takes a checkpoint is merged too, and
a thousand slow ones do not hold back the writers: at any time one segment is being written, and
many small ones share the record that commits them.

A merge that fails, for instance on a full disk, does no harm. It is tried again after the next
flush of its partition, as is what was waiting when the disk was closed.
"""

import asyncio
import logging
from collections.abc import Iterable
from itertools import islice

from stratalog.errors import StratalogError
from stratalog.segments.context import DiskContext
from stratalog.segments.maintenance.choose_merges import MergeRule, after_flush
from stratalog.segments.maintenance.major_compaction import Compactor
from stratalog.segments.read import DurableLog

PARTITIONS_AT_A_TIME = 64

log = logging.getLogger(__name__)


class MergeTurns:
    """The partitions whose small segments may be merged."""

    def __init__(self, context: DiskContext, compactor: Compactor) -> None:
        self._files_min = context.options.merge_after_files
        self._compactor = compactor
        self._waiting: dict[int, DurableLog] = {}
        self._is_taking_turns = False
        self._is_stopped = False

    def flushed(self, partitions: Iterable[DurableLog]) -> None:
        """These may have new segments. Returns at once."""
        if self._files_min is None or self._is_stopped:
            return
        for partition in partitions:
            # The newest segment is not merged.
            if len(partition.layout.files) > self._files_min:
                self._waiting.setdefault(partition.number, partition)
        if self._waiting and not self._is_taking_turns:
            self._is_taking_turns = True
            self._compactor.tasks.start(self._take_turns(after_flush(self._files_min)))

    def stop(self) -> None:
        """Begin no other merge. The one that is written is a task of the compactor."""
        self._is_stopped = True

    async def _take_turns(self, rule: MergeRule) -> None:
        while self._waiting and not self._is_stopped:
            numbers = list(islice(self._waiting, PARTITIONS_AT_A_TIME))
            partitions = [self._waiting.pop(number) for number in numbers]
            try:
                await self._compactor.merge(partitions, rule, lambda: self._is_stopped)
            except StratalogError as error:
                names = ", ".join(repr(each.name) for each in partitions[:3])
                log.warning("segments of %s were not merged: %s", names, error)
            await asyncio.sleep(0)  # most have nothing to merge
        self._is_taking_turns = False
