"""The options of the data source: their names, what they may be, and what they mean.

Spark hands them over as text, by names in any case. What is unknown or wrong is refused, with the
nearest that is right: an option that is silently ignored is the worst kind of answer.
"""

import difflib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from stratalog.errors import Invalid
from stratalog.herd import is_name
from stratalog.objectlog.holds import legal_name
from stratalog.objectlog.stored import FIRST_OFFSET, OFFSET_MAX, Verify
from stratalog.objectlog.tree import Window
from stratalog.pipeline.read.splits import EVERYTHING, SPLIT_BYTES
from stratalog.pipeline.spark import absolute_url

PIN_S = 3600.0
PIN_S_MAX = 366 * 24 * 3600.0
GLOB_MARKS = "*?["

PATH = "path"
COMMON_NAMES = (PATH, "pin", "pinSeconds", "splitBytes", "splitsMin", "verify")
HERD_NAMES = ("herd", "logs")
READ_NAMES = (
    *COMMON_NAMES,
    *HERD_NAMES,
    "fromOffset",
    "fromTime",
    "pushFilters",
    "toOffset",
    "toTime",
)
STREAM_NAMES = (
    *COMMON_NAMES,
    "cursor",
    "failOnDataLoss",
    "maxBytesPerTrigger",
    "maxRecordsPerTrigger",
    "startingOffset",
    "startingTime",
)
COUNTERPARTS = {
    "fromOffset": "startingOffset",
    "fromTime": "startingTime",
    "startingOffset": "fromOffset",
    "startingTime": "fromTime",
}
"""What a stream has in place of an option of a read, and the other way round."""

_VERIFY: dict[str, Verify] = {"true": True, "records": "records", "false": False}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What ``spark.read`` was asked for."""

    url: str
    herd: bool = False
    logs: tuple[str, ...] | None = None
    window: Window = EVERYTHING
    pin_s: float | None = PIN_S
    """How long what was planned is held. None: not at all."""

    split_bytes: int = SPLIT_BYTES
    splits_min: int = 1
    verify: Verify = True
    push_filters: bool = False


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What ``spark.readStream`` was asked for."""

    url: str
    starting_offset: int | None = None
    starting_latest: bool = False
    starting_us: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    cursor: str | None = None
    fail_on_data_loss: bool = True
    pin_s: float | None = PIN_S
    split_bytes: int = SPLIT_BYTES
    splits_min: int = 1
    verify: Verify = True


def is_herd(options: Mapping[str, str]) -> bool:
    """Whether these are options for a herd. The names of all of them are checked on the way."""
    given = Given(options)
    given.check_names((*READ_NAMES, *STREAM_NAMES))
    return given.flag("herd", default=False)


def parse_read(options: Mapping[str, str]) -> ReadOptions:
    given = Given(options)
    given.check_names(READ_NAMES, others=STREAM_NAMES, where="spark.readStream")
    herd = given.flag("herd", default=False)
    logs = given.text("logs")
    if logs is not None and not herd:
        raise Invalid(
            "the option logs chooses among the logs of a herd",
            hint='Set the option herd to "true", with the path of the herd\'s root.',
        )
    return ReadOptions(
        url=given.url("read", '.load("s3://bucket/orders")'),
        herd=herd,
        logs=None if logs is None else parse_logs(logs.split(",")),
        window=window_of(
            given.whole("fromOffset", FIRST_OFFSET),
            given.whole("toOffset", FIRST_OFFSET),
            given.time_us("fromTime"),
            given.time_us("toTime"),
        ),
        push_filters=given.flag("pushFilters", default=False),
        pin_s=_pin_s(given),
        split_bytes=given.whole("splitBytes", 1) or SPLIT_BYTES,
        splits_min=given.whole("splitsMin", 1) or os.cpu_count() or 1,
        verify=_verify(given),
    )


def parse_stream(options: Mapping[str, str]) -> StreamOptions:
    given = Given(options)
    if given.flag("herd", default=False):
        raise Invalid(
            "a herd cannot be read as a stream",
            hint="Start one query for each log, at herd.log(name).store(), or read it as a batch.",
        )
    given.check_names((*STREAM_NAMES, "herd"), others=READ_NAMES, where="spark.read")
    text = (given.text("startingOffset") or "").lower()
    starting_us = given.time_us("startingTime")
    if text and starting_us is not None:
        raise Invalid(
            "a stream starts at an offset or at a time, not at both",
            hint="Leave out startingOffset or startingTime.",
        )
    if text in ("", "earliest", "latest"):
        starting_offset = None
    else:
        starting_offset = given.whole(
            "startingOffset", FIRST_OFFSET, allowed='"earliest", "latest" or an offset from 1 on'
        )
    cursor = given.text("cursor")
    if cursor is not None and not legal_name(cursor):
        raise _wrong("cursor", cursor, "a name of letters, digits and underscores")
    return StreamOptions(
        url=given.url("read", '.load("s3://bucket/orders")'),
        starting_offset=starting_offset,
        starting_latest=text == "latest",
        starting_us=starting_us,
        max_records=given.whole("maxRecordsPerTrigger", 1),
        max_bytes=given.whole("maxBytesPerTrigger", 1),
        cursor=cursor,
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        pin_s=_pin_s(given),
        split_bytes=given.whole("splitBytes", 1) or SPLIT_BYTES,
        splits_min=given.whole("splitsMin", 1) or os.cpu_count() or 1,
        verify=_verify(given),
    )


def window_of(
    from_offset: int | None, to_offset: int | None, from_us: int | None, to_us: int | None
) -> Window:
    """The part of a log between these bounds, of which the upper ones are exclusive."""
    if from_offset is not None and to_offset is not None and to_offset < from_offset:
        raise Invalid(
            f"offsets from {from_offset} to {to_offset} are none", hint="Swap the two bounds."
        )
    if from_us is not None and to_us is not None and to_us < from_us:
        raise Invalid(f"times from {from_us} to {to_us} are none", hint="Swap the two bounds.")
    return Window(from_offset or 0, to_offset, from_us, to_us)


def parse_logs(names: Iterable[str]) -> tuple[str, ...]:
    """Names of logs and patterns of names. ``Invalid`` for what can be neither."""
    found = tuple(name.strip() for name in names)
    for name in found:
        if not is_name(name) and not (name and any(mark in name for mark in GLOB_MARKS)):
            raise _wrong("logs", name, "names of logs and patterns such as orders-*")
    return found


def parse_time_us(text: str) -> int | None:
    """Microseconds since 1970 from themselves or from an ISO time; one without a zone is UTC."""
    if text.isascii() and text.isdigit():
        return min(int(text), OFFSET_MAX)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0, microseconds_of(when))


def microseconds_of(when: datetime) -> int:
    """Microseconds since 1970 of a time; one without a zone is UTC."""
    aware = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


class Given:
    """Options as a user wrote them, by their names in any case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def check_names(
        self, known: Iterable[str], *, others: Iterable[str] = (), where: str = ""
    ) -> None:
        """Refuse an option that is not known, or known only elsewhere."""
        by_key = {name.lower(): name for name in known}
        elsewhere = {name.lower(): name for name in others}
        for key in self._options:
            if key in by_key:
                continue
            if key in elsewhere:
                meant = COUNTERPARTS.get(elsewhere[key])
                raise Invalid(
                    f"the option {elsewhere[key]} is one of {where}",
                    hint=f"Use {meant} here." if meant else "Leave it out.",
                )
            if key == "paths":
                raise Invalid(
                    "several paths were given",
                    hint="Read one log, or a herd (the option herd), or join reads with union.",
                )
            hint = f"The options are {', '.join(sorted(by_key.values()))}."
            for near in difflib.get_close_matches(key, by_key, n=1):
                hint = f"Did you mean {by_key[near]}?"
            raise Invalid(f"there is no option {key}", hint=hint)

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def url(self, purpose: str, example: str) -> str:
        """The path, as a place that every process finds."""
        path = self.text(PATH)
        if not path:
            raise Invalid(
                f"it was not said which log to {purpose}", hint=f"Give its path or URL: {example}."
            )
        return absolute_url(path)

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise _wrong(name, text, '"true" or "false"')
        return text.lower() == "true"

    def whole(self, name: str, least: int, *, allowed: str = "") -> int | None:
        """A whole number, at least so large. None if the option was not given."""
        text = self.text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= OFFSET_MAX:
            raise _wrong(name, text, allowed or f"a whole number from {least} on")
        return int(text)

    def time_us(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        time_us = parse_time_us(text)
        if time_us is None:
            raise _wrong(
                name, text, "an ISO time like 2026-01-31T12:00:00Z or microseconds since 1970"
            )
        return time_us


def _pin_s(given: Given) -> float | None:
    text, pin_s = given.text("pinSeconds"), PIN_S
    if text is not None:
        try:
            pin_s = float(text)
        except ValueError:
            pin_s = math.nan
        if not 0 < pin_s <= PIN_S_MAX:
            raise _wrong("pinSeconds", text, "a number of seconds, more than 0 and at most a year")
    if given.flag("pin", default=True):
        return pin_s
    if text is not None:
        raise Invalid("pinSeconds without a pin means nothing", hint="Leave out one of the two.")
    return None


def _verify(given: Given) -> Verify:
    text = given.text("verify")
    chosen = True if text is None else _VERIFY.get(text.lower())
    if chosen is None:
        raise _wrong("verify", text or "", '"true", "records" or "false"')
    return chosen


def _wrong(name: str, value: str, allowed: str) -> Invalid:
    return Invalid(f"the option {name} cannot be {value!r}", hint=f"It is {allowed}.", actual=value)
