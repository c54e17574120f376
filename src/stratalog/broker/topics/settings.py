"""The settings of a topic: their names are Kafka's, and each says what it means here.

A setting is in this table only if its promise is kept. Anything else is refused by name: a setting
that is taken and does nothing would be a lie. ``TopicSettings`` is what the rest of the broker
reads.
"""

import difflib
import enum
from collections.abc import Mapping
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from stratalog.broker.wire import Refused

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
UNLIMITED = -1
KEY_LENGTH_SHOWN_MAX = 80


class InvalidSetting(Refused):
    """A setting of a topic is unknown, not supported, or has a value that it cannot have."""

    kind = "invalid-setting"
    default_hint = "`stratalog topics describe NAME` lists every setting of a topic."

    def __init__(
        self,
        message: str,
        code: ErrorCode = ErrorCode.invalid_config,
        *,
        hint: str | None = None,
    ) -> None:
        super().__init__(code, message, hint=hint)


class Kind(enum.IntEnum):
    """The type of a setting, by its number on the wire."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    LIST = 7


class TimestampType(enum.Enum):
    """Whose time a record has."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: its type, its default, the values that it takes, its meaning."""

    name: str
    kind: Kind
    default: str
    meaning: str
    at_least: int = 0
    at_most: int = LONG_MAX
    choices: tuple[str, ...] = ()
    """For words: the values that are taken."""
    broker_name: str
    """What Kafka calls the same setting of a broker, which is the default for its topics."""
    others: str = ""
    """Why Kafka's other values are not taken."""

    def normal(self, value: str) -> str:
        """The value in its normal form, or ``InvalidSetting``."""
        if self.kind in (Kind.INT, Kind.LONG):
            return str(self._number(value))
        words = (
            [word.strip() for word in value.split(",")]
            if self.kind is Kind.LIST
            else [value.strip()]
        )
        if self.kind is Kind.BOOLEAN:
            words = [word.lower() for word in words]
        for word in words:
            if word not in self.choices:
                why = f": {self.others}" if self.others else ""
                raise self._refused(value, f"it takes {_listed(self.choices)}{why}")
        return ",".join(dict.fromkeys(words))

    def _number(self, value: str) -> int:
        text = value.strip()
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
            raise self._refused(value, f"not a number of type {self.kind.name}")
        number = int(text)
        if not self.at_least <= number <= self.at_most:
            why = f". {self.others}" if self.others else ""
            raise self._refused(value, f"it takes {self.at_least} to {self.at_most}{why}")
        return number

    def _refused(self, value: str, reason: str) -> InvalidSetting:
        return InvalidSetting(
            f"invalid value {_shown(value)} for configuration {self.name}: {reason}"
        )


_SETTINGS = (
    Setting(
        name="cleanup.policy",
        kind=Kind.LIST,
        default="delete",
        choices=("delete",),
        broker_name="log.cleanup.policy",
        others="compaction is not there yet",
        meaning="'delete': old segments are removed by retention.ms and retention.bytes. "
        "'compact' is refused: compaction is not there yet.",
    ),
    Setting(
        name="compression.type",
        kind=Kind.STRING,
        default="producer",
        choices=("producer",),
        broker_name="compression.type",
        others="the broker stores batches as they came and never compresses them again",
        meaning="'producer': batches are stored with the codec that their producer chose.",
    ),
    Setting(
        name="flush.messages",
        kind=Kind.LONG,
        default="1",
        at_least=1,
        broker_name="log.flush.interval.messages",
        meaning="At most this many records may be acknowledged before they are synced. Every "
        "batch is synced before it is acknowledged, which keeps the promise of every "
        "value.",
    ),
    Setting(
        name="flush.ms",
        kind=Kind.LONG,
        default=str(LONG_MAX),
        broker_name="log.flush.interval.ms",
        meaning="At most this many milliseconds may pass until an acknowledged record is synced. "
        "Every batch is synced before it is acknowledged, which keeps the promise of "
        "every value.",
    ),
    Setting(
        name="max.message.bytes",
        kind=Kind.INT,
        default="1048588",
        at_most=INT_MAX,
        broker_name="message.max.bytes",
        meaning="The largest record batch that is taken, as it comes (compressed, if it is).",
    ),
    Setting(
        name="message.timestamp.after.max.ms",
        kind=Kind.LONG,
        default="3600000",
        broker_name="log.message.timestamp.after.max.ms",
        meaning="How far a record's time may lie ahead of the broker's. A batch beyond it is "
        "refused. Without effect if message.timestamp.type is LogAppendTime.",
    ),
    Setting(
        name="message.timestamp.before.max.ms",
        kind=Kind.LONG,
        default=str(LONG_MAX),
        broker_name="log.message.timestamp.before.max.ms",
        meaning="How far a record's time may lie behind the broker's. A batch beyond it is "
        "refused. Without effect if message.timestamp.type is LogAppendTime.",
    ),
    Setting(
        name="message.timestamp.type",
        kind=Kind.STRING,
        default=TimestampType.CREATE_TIME.value,
        choices=tuple(each.value for each in TimestampType),
        broker_name="log.message.timestamp.type",
        meaning="'CreateTime': a record has the time that its producer gave it. 'LogAppendTime': "
        "the time at which the broker took it.",
    ),
    Setting(
        name="min.insync.replicas",
        kind=Kind.INT,
        default="1",
        at_least=1,
        at_most=1,
        broker_name="min.insync.replicas",
        others="One node holds each partition, so acks=all could never be met",
        meaning="How many replicas must have a record before acks=all is answered. One node holds "
        "each partition, so only 1 is taken.",
    ),
    Setting(
        name="retention.bytes",
        kind=Kind.LONG,
        default=str(UNLIMITED),
        at_least=UNLIMITED,
        broker_name="log.retention.bytes",
        meaning="A partition keeps at least this many bytes, if it has them. Closed segments "
        "beyond are removed, oldest first. -1: no limit.",
    ),
    Setting(
        name="retention.ms",
        kind=Kind.LONG,
        default="604800000",
        at_least=UNLIMITED,
        broker_name="log.retention.ms",
        meaning="Closed segments all of whose records are older than this are removed. -1: no "
        "limit. Records in the write-ahead log stay until it has gone on to its next "
        "file.",
    ),
    Setting(
        name="unclean.leader.election.enable",
        kind=Kind.BOOLEAN,
        default="false",
        choices=("false",),
        broker_name="unclean.leader.election.enable",
        others="a replica that lacks acknowledged records never leads",
        meaning="'false': a replica that lacks acknowledged records never leads.",
    ),
)

SETTINGS: Mapping[str, Setting] = {each.name: each for each in _SETTINGS}
"""Every setting of a topic, in alphabetical order."""

_SEGMENTS = "the node cuts segments for all its partitions at once"
_COMPACTION = "compaction is not there yet"
_REPLICATION = "one node holds each partition"
_TIERED = "there is no tiered storage"

NOT_SUPPORTED: Mapping[str, str] = {
    "compression.gzip.level": "the broker never compresses",
    "compression.lz4.level": "the broker never compresses",
    "compression.zstd.level": "the broker never compresses",
    "delete.retention.ms": _COMPACTION,
    "file.delete.delay.ms": "a removed segment's file goes when its last reader has ended",
    "follower.replication.throttled.replicas": _REPLICATION,
    "index.interval.bytes": _SEGMENTS,
    "leader.replication.throttled.replicas": _REPLICATION,
    "local.retention.bytes": _TIERED,
    "local.retention.ms": _TIERED,
    "max.compaction.lag.ms": _COMPACTION,
    "message.downconversion.enable": "old message formats are not served",
    "message.format.version": "batches are stored in format v2 only",
    "message.timestamp.difference.max.ms": "use message.timestamp.before.max.ms and .after.max.ms",
    "min.cleanable.dirty.ratio": _COMPACTION,
    "min.compaction.lag.ms": _COMPACTION,
    "preallocate": _SEGMENTS,
    "remote.log.copy.disable": _TIERED,
    "remote.log.delete.on.disable": _TIERED,
    "remote.storage.enable": _TIERED,
    "segment.bytes": _SEGMENTS,
    "segment.index.bytes": _SEGMENTS,
    "segment.jitter.ms": _SEGMENTS,
    "segment.ms": _SEGMENTS,
}
"""Kafka's settings that do not exist here, each with its reason."""


def setting(name: str) -> Setting:
    """A setting by its name, or ``InvalidSetting`` that says why there is none."""
    found = SETTINGS.get(name)
    if found is not None:
        return found
    reason = NOT_SUPPORTED.get(name)
    if reason is not None:
        raise InvalidSetting(f"topic configuration {name} is not supported: {reason}")
    near = difflib.get_close_matches(name[:KEY_LENGTH_SHOWN_MAX], SETTINGS, n=1)
    raise InvalidSetting(
        f"unknown topic configuration {_shown(name)}",
        hint=f"Did you mean {near[0]}?" if near else None,
    )


def normal_settings(given: Mapping[str, str | None]) -> dict[str, str]:
    """Settings as they are stored: known, in their normal form. Else ``InvalidSetting``."""
    normal = {}
    for name, value in sorted(given.items()):
        found = setting(name)
        if value is None:
            raise InvalidSetting(f"null value not supported for topic configuration {name}")
        normal[name] = found.normal(value)
    return normal


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of one topic, with the defaults filled in."""

    message_bytes_max: int
    retention_bytes: int | None
    retention_ms: int | None
    timestamp_type: TimestampType
    timestamp_after_ms_max: int
    timestamp_before_ms_max: int

    @classmethod
    def of(
        cls, given: Mapping[str, str], defaults: Mapping[str, str] | None = None
    ) -> "TopicSettings":
        """From stored settings, which are in their normal form, and the broker's defaults."""

        def value(name: str) -> str:
            return given.get(name) or (defaults or {}).get(name) or SETTINGS[name].default

        def limit(name: str) -> int | None:
            number = int(value(name))
            return None if number == UNLIMITED else number

        return cls(
            message_bytes_max=int(value("max.message.bytes")),
            retention_bytes=limit("retention.bytes"),
            retention_ms=limit("retention.ms"),
            timestamp_type=TimestampType(value("message.timestamp.type")),
            timestamp_after_ms_max=int(value("message.timestamp.after.max.ms")),
            timestamp_before_ms_max=int(value("message.timestamp.before.max.ms")),
        )


def _listed(words: tuple[str, ...]) -> str:
    return " or ".join(f"'{word}'" for word in words)


def _shown(text: str) -> str:
    return ascii(text if len(text) <= KEY_LENGTH_SHOWN_MAX else text[:KEY_LENGTH_SHOWN_MAX] + "…")
