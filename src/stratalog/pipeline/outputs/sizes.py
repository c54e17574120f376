"""How much a herd holds: records and bytes of each log, read off the manifests."""

from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import SparkSession

from stratalog.herd import log_store
from stratalog.objectlog.stored import Manifest, load_any_manifest
from stratalog.pipeline.jobs import Held, HerdJob, LogRef
from stratalog.pipeline.outputs.publish import Outputs
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import Store, Usage


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
class HerdSize(Held):
    """What all of them hold."""

    logs: tuple[LogSize, ...] = ()
    usage: Usage = field(default_factory=Usage)

    @property
    def output_rows(self) -> int:
        return sum(each.output_rows for each in self.logs)

    @property
    def output_bytes(self) -> int:
        return sum(each.output_bytes for each in self.logs)


def bytes_of(manifest: Manifest) -> int:
    """How many bytes the fragments of a log have."""
    return sum(entry.num_bytes for entry in manifest.entries)


def measure_herd(spark: SparkSession, root_url: str, *, job: str) -> HerdSize:
    """Two reads for each log. What cannot be read counts for nothing."""
    measuring = HerdJob(spark, root_url, DEFAULT_RUNTIME)
    logs = measuring.for_each(measuring.find(), partial(_measure, job)).values
    return HerdSize(tuple(logs), measuring.usage)


async def _measure(job: str, root: Store, ref: LogRef) -> LogSize:
    manifest, _ = await load_any_manifest(log_store(root, ref.id))
    output = await Outputs(root, job).find(ref.id)
    return LogSize(
        log=ref.name or manifest.name,
        log_id=ref.id,
        records=manifest.count,
        num_bytes=bytes_of(manifest),
        output_rows=0 if output is None else output.rows,
        output_bytes=0 if output is None else output.num_bytes,
    )
