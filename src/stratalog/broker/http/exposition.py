"""Prometheus' text format, as far as a broker needs it.

# HELP stratalog_broker_connections Clients that are connected now.
# TYPE stratalog_broker_connections gauge
stratalog_broker_connections 3
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from stratalog.invariants import invariant

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "summary"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a family. A summary has samples whose names end differently."""

    value: float
    labels: Mapping[str, str]
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its help, its type, and its values by their labels."""

    name: str
    kind: Kind
    help: str
    samples: tuple[Sample, ...]


def single(name: str, kind: Kind, meaning: str, value: float) -> Family:
    """A metric that has one value and no labels."""
    return Family(name, kind, meaning, (Sample(value, {}),))


def render(families: Iterable[Family]) -> bytes:
    """The families as Prometheus reads them. One without a value is left out."""
    lines: list[str] = []
    seen: set[str] = set()
    for family in families:
        invariant(family.name not in seen, "a metric is exposed once")
        seen.add(family.name)
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {_line(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines.extend(
            f"{family.name}{each.suffix}{_labels(each.labels)} {_number(each.value)}"
            for each in family.samples
        )
    return "".join(f"{line}\n" for line in lines).encode()


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items()) + "}"


def _quoted(value: str) -> str:
    return _line(value).replace('"', '\\"')


def _line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
