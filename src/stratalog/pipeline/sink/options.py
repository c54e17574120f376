"""The options of the sink: where rows go, and under which number."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from stratalog.errors import Invalid
from stratalog.herd import check_name
from stratalog.objectlog.bulk import Batch, check_query
from stratalog.objectlog.stored import Compression
from stratalog.pipeline.read import PATH, Given

FRAGMENT_BYTES = 4 << 20
FRAGMENT_BYTES_MAX = 256 << 20
SERVER = "spark"
COMPRESSIONS = ("zstd", "snappy", "none")
WRITE_NAMES = (
    PATH,
    "batchId",
    "compression",
    "create",
    "fragmentBytes",
    "log",
    "queryId",
    "server",
)
STREAM_WRITE_NAMES = (*(name for name in WRITE_NAMES if name != "batchId"), "checkpointLocation")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What ``df.write`` or ``df.writeStream`` was asked for."""

    url: str
    log: str | None = None
    """The name of a log, if ``url`` is the root of a herd."""

    server: str = SERVER
    """Under which name the writes are marked in the herd."""

    create: bool = False
    query: str | None = None
    batch: int | None = None
    fragment_bytes: int = FRAGMENT_BYTES
    compression: Compression = "zstd"


@dataclass(frozen=True, slots=True)
class Target:
    """Where the rows go, as every process of the job sees it."""

    url: str
    options: SinkOptions
    query: str | None = None
    """The query that writes, if the writes are numbered."""

    job: str | None = None
    """If they are not: the upload guard of the whole job, to which those of the tasks belong."""

    log_id: str | None = None
    """In a herd: the id of the log."""


def parse_sink(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    given = Given(options)
    given.check_names(STREAM_WRITE_NAMES if streaming else WRITE_NAMES)
    query, batch = given.text("queryId"), given.whole("batchId", 0)
    if not streaming and (query is None) != (batch is None):
        raise Invalid(
            "queryId and batchId belong together: they say which write this is",
            hint="Give both, and a write is done once however often it is repeated; or neither.",
        )
    if query is not None:
        check_query(query)
        Batch(query, batch or 0)
    compression = given.text("compression") or "zstd"
    if compression not in COMPRESSIONS:
        raise Invalid(
            f"the option compression cannot be {compression!r}",
            hint=f"It is one of {', '.join(COMPRESSIONS)}.",
            actual=compression,
        )
    log = given.text("log")
    return SinkOptions(
        url=given.url("write to", '.save("s3://bucket/orders") or .start("s3://…")'),
        log=None if log is None else check_name(log, "log"),
        server=check_name(given.text("server") or SERVER, "server"),
        create=given.flag("create", default=False),
        query=query,
        batch=batch,
        fragment_bytes=_fragment_bytes(given.whole("fragmentBytes", 1)),
        compression=cast(Compression, compression),
    )


def _fragment_bytes(given: int | None) -> int:
    if given is not None and given > FRAGMENT_BYTES_MAX:
        raise Invalid(
            f"fragmentBytes is at most {FRAGMENT_BYTES_MAX}, not {given}",
            hint="A task holds several fragments in memory; tens of megabytes are large.",
            expected=FRAGMENT_BYTES_MAX,
            actual=given,
        )
    return given or FRAGMENT_BYTES
