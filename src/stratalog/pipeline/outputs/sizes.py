"""How much a herd holds: records and bytes of each log, read off the manifests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stratalog.blocking import loop_thread
from stratalog.errors import NotFound
from stratalog.herd import log_store
from stratalog.objectlog.stored import Manifest, load_any_manifest
from stratalog.pipeline.jobs import LogRef, find_logs, for_each_log, open_root, place_of
from stratalog.pipeline.outputs.publish import Outputs
from stratalog.store import Store, Usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSize:
    """What a log holds, and what was published of it."""

    log: str | None
    log_id: str
    records: int = 0
    num_bytes: int = 0
    output_rows: int = 0
    output_bytes: int = 0


@dataclass(frozen=True, slots=True)
class HerdSize:
    """What all of them hold."""

    logs: tuple[LogSize, ...] = ()
    usage: Usage = field(default_factory=Usage)

    @property
    def records(self) -> int:
        return sum(each.records for each in self.logs)

    @property
    def num_bytes(self) -> int:
        return sum(each.num_bytes for each in self.logs)

    @property
    def output_rows(self) -> int:
        return sum(each.output_rows for each in self.logs)

    @property
    def output_bytes(self) -> int:
        return sum(each.output_bytes for each in self.logs)


def bytes_of(manifest: Manifest) -> int:
    """How many bytes the fragments of a log have."""
    return sum(entry.num_bytes for entry in manifest.entries)


def measure_herd(
    spark: SparkSession,
    root_url: str,
    *,
    job: str | None = None,
    refs: Sequence[LogRef] | None = None,
) -> HerdSize:
    """One read a log, and one more with ``job``. What cannot be read counts for nothing."""
    place = place_of(root_url)
    found = refs if refs is not None else loop_thread().run(lambda: find_logs(open_root(place)))
    outcomes = for_each_log(spark, place, found, _Measuring(job))
    return HerdSize(tuple(outcomes.values), outcomes.usage)


@dataclass(frozen=True, slots=True)
class _Measuring:
    job: str | None

    async def __call__(self, root: Store, ref: LogRef) -> LogSize:
        assert ref.log_id is not None
        manifest, _ = await load_any_manifest(log_store(root, ref.log_id))
        rows = size = 0
        if self.job is not None:
            try:
                output = await Outputs(root, self.job).load(ref.log_id)
                rows, size = output.rows, output.num_bytes
            except NotFound:
                rows = size = 0
        return LogSize(
            log=ref.name or manifest.name,
            log_id=ref.log_id,
            records=manifest.count,
            num_bytes=bytes_of(manifest),
            output_rows=rows,
            output_bytes=size,
        )
