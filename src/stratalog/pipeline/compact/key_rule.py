"""The expressions of a rule by key, checked by Spark before anything is read.

A key is kept as bytes, and two keys are the same if their bytes are. So its type must be one whose
text is exact and the same whatever the session is set to: text and bytes, whole numbers, decimals,
dates, truth values. Others (floats, times, structs) are refused: a cast says how they
are written.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from stratalog.errors import Invalid
from stratalog.pipeline.jobs import require
from stratalog.pipeline.spark import RECORDS_DDL

GRACE_S = 86_400.0
GRACE_S_MAX = 100 * 366 * 86_400.0

SETTINGS = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")
"""What the value of an expression may depend on besides the record."""

COLUMNS_HINT = "It is an expression over offset, timestamp and body."
TYPE_HINT = (
    "A key is text, bytes, a whole number, a decimal, a date or a truth value. "
    "Cast it: CAST(… AS STRING)."
)

_EXACT = re.compile(r"string|binary|boolean|tinyint|smallint|int|bigint|decimal\(\d+,\d+\)|date")


@dataclass(frozen=True, slots=True)
class ByKey:
    """The last record of each key lives, and nothing else.

    ``key_sql`` is an expression over offset, timestamp and body. Where it is null the record has no
    key, and lives. ``tombstone_sql`` says whether a record means that its key is gone: then it
    lives for another ``grace_s`` seconds, so that slow readers hear of it.
    """

    key_sql: str
    tombstone_sql: str | None = None
    grace_s: float = GRACE_S

    def __post_init__(self) -> None:
        require(bool(self.key_sql.strip()), "a key is an expression")
        require(0 <= self.grace_s <= GRACE_S_MAX, "grace_s is from 0 to a hundred years")


@dataclass(frozen=True, slots=True)
class KeyRule:
    """A rule that Spark understands."""

    by: ByKey
    key_type: str
    digest: str
    """Tells whether rows were made by the same expressions. The time of grace does not matter."""

    def applied(self, records: DataFrame, *others: Column) -> DataFrame:
        """``key, offset, timestamp_us, tombstone`` of each record, and ``others``."""
        # An expression that gives several rows is not taken inside of another one.
        key = sf.element_at(sf.array(_expression(self.by.key_sql)), 1)
        if self.key_type != "binary":
            key = key.cast("string").cast("binary")
        gone = sf.lit(False)
        if self.by.tombstone_sql is not None:
            gone = sf.coalesce(_expression(self.by.tombstone_sql), sf.lit(False))
        time_us = sf.unix_micros("timestamp")
        return records.select(
            key.alias("key"),
            "offset",
            time_us.alias("timestamp_us"),
            gone.alias("tombstone"),
            *others,
        )


def checked_rule(spark: SparkSession, by: ByKey) -> KeyRule:
    """The rule, or ``Invalid`` that says what is wrong with it."""
    nothing = spark.createDataFrame([], RECORDS_DDL)
    key_type = _type_of(nothing, by.key_sql, "key")
    if _EXACT.fullmatch(key_type) is None:
        raise Invalid(f"a key of the type {key_type} is not exact", hint=TYPE_HINT)
    if by.tombstone_sql is not None:
        kind = _type_of(nothing, by.tombstone_sql, "tombstone")
        if kind not in ("boolean", "void"):
            raise Invalid(
                f"a tombstone is a truth value, not {kind}",
                hint="For example: body IS NULL, or get_json_object(string(body), '$.value') = ''.",
            )
    settings = [spark.conf.get(name, None) for name in SETTINGS]
    parts = [by.key_sql, by.tombstone_sql, key_type, *settings]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return KeyRule(by, key_type, digest)


def _type_of(nothing: DataFrame, sql: str, what: str) -> str:
    # Beside a column an aggregate is refused, inside of an array what gives several rows.
    asked = (sf.col("offset"), sf.expr(sql), sf.array(_expression(sql)))
    with asked_of(f"the {what} cannot be evaluated", hint=COLUMNS_HINT):
        _, (_, kind), _ = nothing.select(*asked).dtypes
    return kind


def enclosed(sql: str) -> str:
    """An expression as a part of another one, whatever it ends with."""
    return f"(\n{sql}\n)"


def _expression(sql: str) -> Column:
    return sf.expr(enclosed(sql))


@contextmanager
def asked_of(
    trouble: str, hint: str = "It is about the records of a log: offset, timestamp, body."
) -> Iterator[None]:
    """A wrong expression is ``Invalid``, with a hint what it should have been."""
    try:
        yield
    except (AnalysisException, ParseException) as error:
        first_line = (str(error).strip().splitlines() or [""])[0]  # below it is the plan
        raise Invalid(f"{trouble}: {first_line}", hint=hint) from None
