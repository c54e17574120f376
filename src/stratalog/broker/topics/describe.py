"""The settings of a topic and of the broker as they are shown: value, source, meaning."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stratalog.broker.options import BrokerOptions
from stratalog.broker.topics.settings import INT_MAX, SETTINGS, Kind


class Source(enum.IntEnum):
    """Where a value comes from, by its number on the wire."""

    TOPIC = 1
    BROKER_OPTIONS = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One setting, as it is shown."""

    name: str
    value: str
    source: Source
    kind: Kind
    meaning: str
    is_read_only: bool
    synonyms: tuple[tuple[str, str, Source], ...]
    """What would hold, from the strongest on: name, value, source."""


def shown_settings(given: Mapping[str, str], defaults: Mapping[str, str]) -> Iterator[Shown]:
    """All settings of a topic, by name."""
    for name, each in SETTINGS.items():
        values = [(each.broker_name, each.default, Source.DEFAULT)]
        if name in defaults and defaults[name] != each.default:
            values.insert(0, (each.broker_name, defaults[name], Source.BROKER_OPTIONS))
        if name in given:
            values.insert(0, (name, given[name], Source.TOPIC))
        _, value, source = values[0]
        yield Shown(
            name=name,
            value=value,
            source=source,
            kind=each.kind,
            meaning=each.meaning,
            is_read_only=False,
            synonyms=tuple(values),
        )


def shown_broker(options: BrokerOptions, advertised: str) -> Iterator[Shown]:
    """The broker's options under the names that Kafka has for them, read-only: they are given when
    the broker starts."""

    def at_most(value: int | None) -> str:
        return "-1" if value is None else str(value)

    rows = (
        ("advertised.listeners", f"PLAINTEXT://{advertised}", Kind.LIST, "advertise"),
        ("auto.create.topics.enable", _word(options.auto_create), Kind.BOOLEAN, "auto_create"),
        ("connections.max.idle.ms", str(options.idle_ms_max), Kind.LONG, "idle_ms_max"),
        ("default.replication.factor", "1", Kind.INT, ""),
        ("delete.topic.enable", "true", Kind.BOOLEAN, ""),
        (
            "fetch.max.bytes",
            str(min(options.fetch_bytes_max, INT_MAX)),
            Kind.INT,
            "fetch_bytes_max",
        ),
        ("listeners", f"PLAINTEXT://{options.listen}", Kind.LIST, "listen"),
        ("log.cleanup.policy", "delete", Kind.LIST, ""),
        ("log.retention.bytes", at_most(options.retention_bytes), Kind.LONG, "retention_bytes"),
        (
            "log.retention.check.interval.ms",
            str(options.retention_check_ms),
            Kind.LONG,
            "retention_check_ms",
        ),
        ("log.retention.ms", at_most(options.retention_ms), Kind.LONG, "retention_ms"),
        ("max.connections", str(options.connections_max), Kind.INT, "connections_max"),
        ("message.max.bytes", str(options.message_bytes_max), Kind.INT, "message_bytes_max"),
        ("min.insync.replicas", "1", Kind.INT, ""),
        ("node.id", str(options.node_id), Kind.INT, "node_id"),
        ("num.partitions", str(options.default_partitions), Kind.INT, "default_partitions"),
        (
            "offsets.retention.minutes",
            str(options.offsets_retention_ms // 60_000),
            Kind.INT,
            "offsets_retention_ms",
        ),
        ("socket.request.max.bytes", str(options.request_bytes_max), Kind.INT, "request_bytes_max"),
    )
    for name, value, kind, option in rows:
        source = Source.BROKER_OPTIONS if option else Source.DEFAULT
        yield Shown(
            name=name,
            value=value,
            source=source,
            kind=kind,
            meaning=f"The option `{option}` of `stratalog serve`." if option else "Fixed.",
            is_read_only=True,
            synonyms=((name, value, source),),
        )


def _word(value: bool) -> str:
    return "true" if value else "false"
