"""Merging: from the last output and what the logs have added to the new output.

A merge is a function of two DataFrames, each with the rows of *many* logs, and gives one:

    last     what it gave the last time for these logs, or None if there is nothing yet
    added    the new records: offset, timestamp, body, log

It keeps the column ``log``, and treats each log on its own: a key of one log has nothing to do with
the same key of another. It only builds a DataFrame. It is called once more before anything is
read, with no records, so that a mistake in it shows at once.

What was merged may be collected from the log afterwards. So what a merge leaves out is gone, and
what is merged differently from one day on stands beside what was merged before. A merge that has an
attribute ``identity``, a text, is therefore refused where the last one had another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from stratalog.errors import Invalid

Merge = Callable[[DataFrame | None, DataFrame], DataFrame]
"""From the last output, if any, and the added records to the new output."""

COLUMNS = ("log", "key", "offset", "timestamp", "body")
"""What ``latest_by_key`` gives for each key, before the columns that it is to add."""


@dataclass(frozen=True, slots=True)
class LatestByKey:
    """The merge that ``latest_by_key`` describes. Sends well to other processes."""

    key_sql: str
    columns: Mapping[str, str] = field(default_factory=dict)
    deleted_sql: str | None = None
    without_key: Literal["refuse", "drop"] = "refuse"

    def __post_init__(self) -> None:
        taken = [name for name in self.columns if name.lower() in COLUMNS]
        if taken:
            raise Invalid(
                f"the output has a column {taken[0]!r} already",
                hint=f"Choose another name than {', '.join(COLUMNS)}.",
            )
        if self.without_key not in ("refuse", "drop"):
            raise Invalid(
                f"without_key is 'refuse' or 'drop', not {self.without_key!r}",
                hint="Choose what becomes of records that have no key.",
            )

    @property
    def identity(self) -> str:
        """What must stay the same from run to run. The added columns may change."""
        deleted = "" if self.deleted_sql is None else f", deleted by {self.deleted_sql}"
        return f"latest by {self.key_sql}{deleted}"

    def __call__(self, last: DataFrame | None, added: DataFrame) -> DataFrame:
        records = self._keyed(added)
        if last is not None:
            records = last.select(*COLUMNS).unionByName(records)
        rest = sf.struct("timestamp", "body")
        latest = (
            records.groupBy("log", "key")
            .agg(sf.max("offset").alias("offset"), sf.max_by(rest, "offset").alias("rest"))
            .select("log", "key", "offset", "rest.timestamp", "rest.body")
        )
        if self.deleted_sql is not None:
            is_deleted = sf.coalesce(sf.expr(self.deleted_sql), sf.lit(False))
            latest = latest.where(~is_deleted)
        return latest.select("*", *(sf.expr(sql).alias(name) for name, sql in self.columns.items()))

    def _keyed(self, added: DataFrame) -> DataFrame:
        key = sf.expr(self.key_sql)
        if self.without_key == "drop":
            keyed = added.withColumn("key", key).where(sf.col("key").isNotNull())
        else:
            keyed = added.withColumn("key", sf.coalesce(key, _refusal()))
        return keyed.select(*COLUMNS)


def latest_by_key(
    key_sql: str,
    columns: Mapping[str, str] | None = None,
    *,
    deleted_sql: str | None = None,
    without_key: Literal["refuse", "drop"] = "refuse",
) -> Merge:
    """A merge that keeps the latest record of each key of a log.

    ``key_sql`` is an expression over offset, timestamp, body and log, for example
    ``get_json_object(cast(body as string), '$.id')``. A record whose key is null makes the run
    fail, or is dropped if ``without_key`` says so. The output has log, key, offset, timestamp, body
    and then ``columns``: names, and expressions over those five. A key whose latest record
    satisfies ``deleted_sql``, over the same five, is not in the output any more.
    """
    return LatestByKey(key_sql, dict(columns or {}), deleted_sql, without_key)


def _refusal() -> Column:
    where = sf.concat(sf.lit("the record at offset "), sf.col("offset").cast("string"))
    which = sf.concat(where, sf.lit(" of the log "), sf.col("log"), sf.lit(" has no key"))
    return sf.raise_error(which)
