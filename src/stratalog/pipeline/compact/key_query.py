"""The query of a compaction by key: what is new in some logs, judged with what is known.

    new records ──► key, tombstone ──► to the task of their bucket ──► judge_units
    orders, one for each bucket ─────► (with the rows of the last run, which it fetches)

One query for all logs. Only new records go through Spark's shuffle; the rows of the last run lie in
the buckets that they belong to. The records are read through the library, which checks the bytes:
what a damaged record says must not decide what lives.
"""

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from stratalog.errors import Invalid
from stratalog.indexset import IndexSet
from stratalog.invariants import invariant
from stratalog.pipeline.compact.key_index import IndexPart, KeyIndex
from stratalog.pipeline.compact.key_rule import KeyRule
from stratalog.pipeline.compact.key_state import UNIT_ROWS, KeyState
from stratalog.pipeline.compact.key_tasks import UnitDone, UnitWork, judge_units
from stratalog.pipeline.compact.key_verdict import Verdict
from stratalog.pipeline.materialize import is_fault_of_data
from stratalog.pipeline.read import SPLIT_BYTES, Part, records_of, split_evenly
from stratalog.pipeline.spark import (
    HERD_RECORDS_DDL,
    PICKLED_DDL,
    batch_of,
    frame_of,
    readable_spark_errors,
    slots_of,
    tidy_error,
    unpickled,
)

TASK_ROWS = 1 << 19
BUCKET_BITS = 16
BUCKETS_MAX = (1 << BUCKET_BITS) - 1
PARTS_PER_BUCKET_MAX = 8

_ORDERS = pa.schema(
    [
        ("unit", pa.int32()),
        ("key", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp_us", pa.int64()),
        ("tombstone", pa.bool_()),
        ("work", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Question:
    part: Part
    """Its new records, and where they are."""

    state: KeyState
    expired_by_us: int

    @property
    def index(self) -> KeyIndex | None:
        """What is known of the others; None if all are new."""
        return self.state.index

    @property
    def records(self) -> int:
        """About how many records are new."""
        return sum(fragment.count for fragment in self.part.fragments)

    @property
    def rows(self) -> int:
        return self.records + (0 if self.index is None else self.index.rows)

    @property
    def buckets(self) -> int:
        if self.index is not None:
            return self.index.buckets
        return min(BUCKETS_MAX, max(1, -(-self.records // UNIT_ROWS)))

    @property
    def is_rewritten(self) -> bool:
        """Whether it is time to write all rows anew: most are gone, or lie in many parts."""
        if self.index is None:
            return True
        gone = 0 if self.index.gone is None else self.index.gone.members
        parts = Counter(part.bucket for part in self.index.parts)
        most = max(parts.values(), default=0)
        return 2 * gone > self.index.rows or most >= PARTS_PER_BUCKET_MAX

    def orders(self, log: int) -> Iterator[UnitWork]:
        index = self.index
        parts: dict[int, list[IndexPart]] = defaultdict(list)
        for part in index.parts if index else ():
            parts[part.bucket].append(part)
        for bucket in range(self.buckets):
            yield UnitWork(
                log=log,
                url=self.part.url,
                bucket=bucket,
                parts=tuple(parts[bucket]),
                gone=index.gone if index else None,
                first_offset=self.state.first_offset,
                up_to=self.state.up_to,
                expired_by_us=self.expired_by_us,
                is_rewritten=self.is_rewritten,
            )


@dataclass(frozen=True, slots=True)
class Answer:
    read: int
    verdict: Verdict
    buckets: int
    parts: tuple[IndexPart, ...]
    """The parts of the index as it is with the new records."""

    is_rewritten: bool
    """Whether they are without the rows that were gone before."""


def ask(spark: SparkSession, rule: KeyRule, questions: Sequence[Question]) -> list[Answer]:
    """Judge the records of all these logs. Raises if that cannot be done for one of them."""
    orders = [[*question.orders(number)] for number, question in enumerate(questions)]
    codes, units = [], 0
    for several in orders:
        codes.append(units << BUCKET_BITS | len(several))
        units += len(several)
    frame = _orders(spark, [work for several in orders for work in several])
    fresh = _new_rows(spark, rule, questions, codes)
    if fresh is not None:
        frame = fresh.unionAll(frame)
    rows = sum(question.rows for question in questions)
    tasks = max(1, min(units, max(slots_of(spark), -(-rows // TASK_ROWS))))
    with readable_spark_errors():
        try:
            done = cast(list[UnitDone], unpickled(_judged(frame, tasks).toArrow()))
        except PySparkException as error:
            if not is_fault_of_data(error):
                raise
            raise Invalid(
                f"a record does not fit the rule: {tidy_error(error)}",
                hint="Let the expression cope with it, for example with try_cast.",
            ) from None
    invariant(len(done) == units, "every bucket is judged once")
    of_log: dict[int, list[UnitDone]] = defaultdict(list)
    for each in done:
        of_log[each.log].append(each)
    return [_answer(question, of_log[number]) for number, question in enumerate(questions)]


def _judged(frame: DataFrame, tasks: int) -> DataFrame:
    together = frame.repartitionById(tasks, sf.pmod(sf.col("unit"), sf.lit(tasks)).cast("int"))
    return together.mapInArrow(judge_units, PICKLED_DDL)


def _orders(spark: SparkSession, works: Sequence[UnitWork]) -> DataFrame:
    rows = [(unit, None, None, None, None, pickle.dumps(work)) for unit, work in enumerate(works)]
    return spark.createDataFrame(pa.Table.from_batches([batch_of(rows, _ORDERS)]))


def _new_rows(
    spark: SparkSession,
    rule: KeyRule,
    questions: Sequence[Question],
    codes: Sequence[int],
) -> DataFrame | None:
    """The rows of new records, each with the number of its unit. None if nothing is new."""
    if not any(question.part.fragments for question in questions):
        return None
    parts = [
        replace(question.part, log=str(code))
        for question, code in zip(questions, codes, strict=True)
    ]
    splits = split_evenly(parts, SPLIT_BYTES, slots_of(spark))
    records = frame_of(spark, splits, records_of, HERD_RECORDS_DDL)
    rows = rule.applied(records, sf.col("log").cast("bigint").alias("code"))
    return rows.select(
        _unit_of(sf.col("code")).alias("unit"),
        "key",
        "offset",
        "timestamp_us",
        "tombstone",
        sf.lit(None).cast("binary").alias("work"),
    )


def _unit_of(code: Column) -> Column:
    """The unit that a row goes to. A code holds the first unit of its log, and how many it has."""
    first = sf.shiftright(code, BUCKET_BITS)
    buckets = code.bitwiseAND(sf.lit(BUCKETS_MAX))
    hashed = sf.coalesce(sf.crc32("key"), sf.col("offset"))
    return (first + sf.pmod(hashed, buckets)).cast("int")


def _answer(question: Question, mine: Sequence[UnitDone]) -> Answer:
    known = () if question.is_rewritten or question.index is None else question.index.parts
    return Answer(
        read=sum(each.read for each in mine),
        verdict=Verdict(
            judged=sum(each.verdict.judged for each in mine),
            dead=IndexSet.union(each.verdict.dead for each in mine),
            must_drop=IndexSet.union(each.verdict.must_drop for each in mine),
        ),
        buckets=question.buckets,
        parts=(*known, *(each.part for each in mine if each.part is not None)),
        is_rewritten=question.is_rewritten,
    )
