"""A log, or the logs of a herd, as a DataFrame: natively where Spark can reach the files.

    frame = read_log(spark, "s3://bucket/orders", from_time="2026-01-01T00:00:00Z")
    with pinned_log(spark, "s3://bucket/orders") as frame:
        frame.groupBy("log").count().show()

Natively means that Spark's own Parquet reader reads the files that the manifest lists; otherwise
tasks fetch them through the library and hand them over as Arrow. Both give the same columns and
rows. What is read is fixed by the call, and pinned.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from pyspark.sql import DataFrame, SparkSession

from stratalog.blocking import loop_thread
from stratalog.errors import Invalid
from stratalog.objectlog.stored import Verify, check_offset
from stratalog.objectlog.tree import Window
from stratalog.pipeline.read.fetch import check_objects, records_of
from stratalog.pipeline.read.native import native_frame, why_not_native
from stratalog.pipeline.read.native_check import check_files
from stratalog.pipeline.read.options import PIN_S, PIN_S_MAX, parse_logs, parse_time_us, window_of
from stratalog.pipeline.read.pinned_plan import Hold, Planned, plan_herd, plan_log
from stratalog.pipeline.read.splits import SPLIT_BYTES, Part, split_evenly
from stratalog.pipeline.spark import (
    HERD_RECORDS_DDL,
    RECORDS_DDL,
    absolute_url,
    frame_of,
    in_tasks,
    slots_of,
)

Place = str | os.PathLike[str]
Time = int | str
"""Microseconds since 1970, or an ISO time; one without a zone is UTC."""

Via = Literal["auto", "native", "arrow"]
"""How records come to Spark: by its own reader, through the library, or whichever is possible."""

Check = bool | Literal["bytes", "records"] | None
"""What is checked of the stored objects. ``None``: what costs next to nothing on the way that is
taken. Through the library these are the bytes (``True``); natively, paths and sizes. ``"bytes"``:
natively the bytes too, which reads each object once more. ``"records"``: the sums of the records,
through the library. ``False``: nothing."""

CHECKS: tuple[Check, ...] = (None, True, False, "bytes", "records")


def read_log(
    spark: SparkSession,
    url: Place,
    *,
    via: Via = "auto",
    from_offset: int | None = None,
    to_offset: int | None = None,
    from_time: Time | None = None,
    to_time: Time | None = None,
    verify: Check = None,
    pin_s: float | None = PIN_S,
) -> DataFrame:
    """The records of a log: ``offset, timestamp, body``. The upper bounds are exclusive.

    What the log holds now stays readable for ``pin_s`` seconds; None leaves that to luck. What
    ``verify`` may be, and what native reading cannot notice: see ``Check`` and the guide.
    """
    window = _window(from_offset, to_offset, from_time, to_time)
    return _Reading(spark, url, via, window, verify, pin_s).log()[0]


@contextmanager
def pinned_log(
    spark: SparkSession,
    url: Place,
    *,
    via: Via = "auto",
    from_offset: int | None = None,
    to_offset: int | None = None,
    from_time: Time | None = None,
    to_time: Time | None = None,
    verify: Check = None,
    pin_s: float | None = PIN_S,
) -> Iterator[DataFrame]:
    """The same, whose pin is released at the end."""
    window = _window(from_offset, to_offset, from_time, to_time)
    frame, planned = _Reading(spark, url, via, window, verify, pin_s).log()
    with _released(planned):
        yield frame


def read_herd(
    spark: SparkSession,
    root_url: Place,
    *,
    logs: Sequence[str] | None = None,
    via: Via = "auto",
    from_offset: int | None = None,
    to_offset: int | None = None,
    from_time: Time | None = None,
    to_time: Time | None = None,
    verify: Check = None,
    pin_s: float | None = PIN_S,
) -> DataFrame:
    """The records of the logs of a herd: ``offset, timestamp, body, log``.

    ``logs`` chooses them by name or by a pattern such as ``orders-*``. The bounds are about each
    log; of one that begins later, what is there is taken.
    """
    window = _window(from_offset, to_offset, from_time, to_time)
    return _Reading(spark, root_url, via, window, verify, pin_s).herd(logs)[0]


@contextmanager
def pinned_herd(
    spark: SparkSession,
    root_url: Place,
    *,
    logs: Sequence[str] | None = None,
    via: Via = "auto",
    from_offset: int | None = None,
    to_offset: int | None = None,
    from_time: Time | None = None,
    to_time: Time | None = None,
    verify: Check = None,
    pin_s: float | None = PIN_S,
) -> Iterator[DataFrame]:
    """The same, whose pins are released at the end."""
    window = _window(from_offset, to_offset, from_time, to_time)
    frame, planned = _Reading(spark, root_url, via, window, verify, pin_s).herd(logs)
    with _released(planned):
        yield frame


@dataclass
class _Reading:
    """Which records are read, where, and how they come to Spark."""

    spark: SparkSession
    url: Place
    via: Via
    window: Window
    verify: Check
    pin_s: float | None

    def __post_init__(self) -> None:
        if self.verify not in CHECKS:
            raise Invalid(
                f"there is no way to verify {self.verify!r}",
                hint='verify is True, "records", "bytes", False or None.',
            )
        self.place, self.hold = absolute_url(self.url), _hold(self.pin_s)

    def log(self) -> tuple[DataFrame, Planned]:
        first = self.window.from_offset
        plan = partial(plan_log, self.place, self.window, self.hold, required_from=first)
        return self._framed(plan, RECORDS_DDL)

    def herd(self, logs: Sequence[str] | None) -> tuple[DataFrame, Planned]:
        if isinstance(logs, str):
            raise Invalid(f"logs is a list of names, not {logs!r}", hint=f"Write logs=[{logs!r}].")
        chosen = None if logs is None else parse_logs(logs)
        plan = partial(plan_herd, self.place, chosen, self.window, self.hold)
        return self._framed(plan, HERD_RECORDS_DDL)

    def _framed(
        self, plan: Callable[[], Awaitable[Planned]], ddl: str
    ) -> tuple[DataFrame, Planned]:
        spark, is_native = self.spark, self._goes_native()
        planned = loop_thread().run(plan)
        try:
            if not any(part.fragments for part in planned.parts):
                return spark.createDataFrame([], ddl), planned
            frame = native_frame(spark, planned.parts, self.window) if is_native else None
            if frame is not None:
                self._check_files(planned.parts)
            if frame is None and self.via == "native":
                raise _not_native("it does not take the list of files that it is given")
            if frame is None:
                splits = split_evenly(planned.parts, SPLIT_BYTES, slots_of(spark))
                read = partial(records_of, verify=self._verify_records())
                frame = frame_of(spark, splits, read, ddl)
            return frame, planned
        except BaseException:
            loop_thread().run(planned.release)
            raise

    def _check_files(self, parts: Sequence[Part]) -> None:
        """What can be checked of files that Spark reads by itself."""
        if self.verify is False:
            return
        loop_thread().run(lambda: check_files(parts))
        if self.verify == "bytes":
            in_tasks(self.spark, split_evenly(parts, SPLIT_BYTES), check_objects)

    def _verify_records(self) -> Verify:
        """What is checked on the way through the library, which has the bytes at hand."""
        if self.verify is None or self.verify == "bytes":
            return True
        return self.verify

    def _goes_native(self) -> bool:
        via, verify = self.via, self.verify
        if via not in get_args(Via):
            ways = ", ".join(get_args(Via))
            raise Invalid(f"there is no way to read {via!r}", hint=f"via is one of {ways}.")
        is_through_us = verify is True or verify == "records"
        if via == "arrow" or (is_through_us and via == "auto"):
            return False
        reason: str | None = "it decodes without us, and verify asks for what we check"
        if not is_through_us:
            reason = why_not_native(self.spark, self.place)
        if reason is not None and via == "native":
            raise _not_native(reason)
        return reason is None


def _not_native(reason: str) -> Invalid:
    return Invalid(
        f"Spark cannot read this natively: {reason}", hint='Use via="arrow", or "auto" to choose.'
    )


def _window(
    from_offset: int | None, to_offset: int | None, from_time: Time | None, to_time: Time | None
) -> Window:
    for offset in (from_offset, to_offset):
        if offset is not None:
            check_offset(offset)
    return window_of(from_offset, to_offset, _time_us(from_time), _time_us(to_time))


def _time_us(time: Time | None) -> int | None:
    if time is None or (type(time) is int and time >= 0):
        return time
    time_us = parse_time_us(time) if isinstance(time, str) else None
    if time_us is None:
        raise Invalid(
            f"not a time: {time!r}",
            hint="Give an ISO time like 2026-01-31T12:00:00Z, or microseconds since 1970.",
        )
    return time_us


def _hold(pin_s: float | None) -> Hold | None:
    if pin_s is not None and (type(pin_s) not in (int, float) or not 0 < pin_s <= PIN_S_MAX):
        raise Invalid(
            f"a pin cannot last {pin_s!r} seconds",
            hint="Give a number of seconds, more than 0 and at most a year, or None for no pin.",
        )
    return Hold.lasting(pin_s)


@contextmanager
def _released(planned: Planned) -> Iterator[None]:
    try:
        yield
    finally:
        loop_thread().run(planned.release)
