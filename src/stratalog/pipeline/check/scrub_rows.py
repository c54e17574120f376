"""The rows that go through Spark in a scrub of a herd, and the notes that they carry.

walked      one a fragment, from ``scrub_walk_tasks`` to ``scrub_examine_tasks``
examined    one a fragment, with its setsum in eight columns, which Spark adds up by log
note        what a task reports besides numbers: pickled, in a row of its own or beside them
"""

import struct
from dataclasses import dataclass

import pyarrow as pa

from stratalog.errors import Corrupt, NotFound, StratalogError
from stratalog.objectlog.check import Damage, ScrubReport
from stratalog.objectlog.stored import Manifest, load_any_manifest
from stratalog.pipeline.jobs import LogRef
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import Store, Usage

COLUMNS = tuple(f"c{number}" for number in range(8))
COUNTS = ("fragments", "records", "num_bytes", "hashed", "let_go")

WALKED = pa.schema(
    [
        ("log_id", pa.string()),
        ("log", pa.string()),
        ("counted", pa.bool_()),
        ("num_bytes", pa.int64()),
        ("entry", pa.binary()),
        ("note", pa.binary()),
    ]
)
EXAMINED = pa.schema(
    [
        ("log_id", pa.string()),
        *((name, pa.int64()) for name in (*COLUMNS, *COUNTS)),
        ("note", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Walked:
    """What is known of a log when its tree was walked."""

    ref: LogRef
    report: ScrubReport | None = None
    """All but what the records themselves would show. None if the log could not be read."""

    count: int = 0
    """How many records the manifest has whose sum is compared."""

    expected: Setsum | None = None
    """What these records add up to, as the manifest says: its setsum without what was collected."""

    collected: Setsum = EMPTY
    """What all records add up to that were collected, as the manifest says."""

    first_offset: int = 0
    """Where that manifest began. What is walked may begin later, if a collection came between."""

    error: StratalogError | None = None


Note = Walked | Usage | str | tuple[Damage, ...]
"""What a task reports besides numbers: a log that was walked, what the store was asked for, the
path of a part of the audit, damages of a fragment. Travels pickled, with a row."""


def examined_row(
    log_id: str = "",
    *,
    setsum: Setsum = EMPTY,
    fragments: int = 0,
    records: int = 0,
    num_bytes: int = 0,
    hashed: int = 0,
    let_go: int = 0,
    note: bytes | None = None,
) -> tuple[object, ...]:
    """A row as in ``EXAMINED``."""
    columns = struct.unpack(f"<{len(COLUMNS)}I", setsum.digest())
    return (log_id, *columns, fragments, records, num_bytes, hashed, let_go, note)


async def compared_manifest(store: Store) -> Manifest | None:
    """The manifest whose sum is compared. None if it is damaged, which the scrub reports."""
    try:
        return (await load_any_manifest(store))[0]
    except (Corrupt, NotFound):
        return None
