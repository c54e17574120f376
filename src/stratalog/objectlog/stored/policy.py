"""A policy: what the pipeline is to do with a log, one JSON object changed by CAS.

    path      policy/POLICY
    fields    live, retain, thresholds, judged, epoch_us, writer, format, write_id, removed
    live      key, tombstone, grace_s: the last record of each key lives; or sql: a query says
              which offsets do
    retain    age_s, bytes: what is older, or beyond so many bytes, goes
    thresholds  live_share_min, new_records_min: when a compaction is worth its while

``judged`` is the offset after the last record that the rule was asked about; it goes when the rule
changes. A part may have fields that we do not know, and nothing else: it is read, and what we do
not know is not done. Removing writes a tombstone (``removed``). What the SQL means is the
pipeline's business; here it is text. Persisted: keep stable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated, ClassVar

import msgspec

from stratalog.errors import Corrupt, Invalid
from stratalog.objectlog.stored.position import Natural
from stratalog.objectlog.stored.stored_json import StoredObject

POLICY_PATH = "policy/POLICY"
POLICY_CURSOR = "policy"
"""The cursor that holds what a policy keeps."""

SECONDS_MAX = 1e10
SQL_CHARACTERS_MAX = 100_000
LIVE_SHARE_MIN = 0.5

Seconds = Annotated[float, msgspec.Meta(ge=0, le=SECONDS_MAX)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]

_HINT = "See docs/guide/pipeline.md#what-the-pipeline-keeps."
_TO_BE_SET = ("live", "retain", "thresholds")


class Live(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """Which records live: the last one of each ``key``, or those that a query names.

    ``key`` is a SQL expression over offset, timestamp and body. ``tombstone`` tells of a record
    that its key is gone; it lives for another ``grace_s``. ``sql`` is a query over the view ``log``
    that gives the offsets that live.
    """

    what: ClassVar[str] = "rule"

    key: str | None = None
    tombstone: str | None = None
    grace_s: Seconds | None = None
    sql: str | None = None

    def __post_init__(self) -> None:
        for name in ("key", "tombstone", "sql"):
            _check_text(f"live.{name}", getattr(self, name))
        _check_number("live.grace_s", self.grace_s, 0, SECONDS_MAX)
        if (self.key is None) == (self.sql is None) and not self.unknown:
            raise Invalid("live has a key or a query (sql), one of the two", hint=_HINT)
        if self.key is None and (self.tombstone is not None or self.grace_s is not None):
            raise Invalid("tombstone and grace_s belong to a key", hint=_HINT)
        if self.tombstone is None and self.grace_s is not None:
            raise Invalid("grace_s is how long a tombstone lives: there is none", hint=_HINT)


class Retention(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """What goes whether it lives or not: what is older than ``age_s``, or beyond ``bytes``."""

    what: ClassVar[str] = "retention"

    age_s: Seconds | None = None
    bytes: Natural | None = None

    def __post_init__(self) -> None:
        _check_number("retain.age_s", self.age_s, 0, SECONDS_MAX, above=True)
        _check_number("retain.bytes", self.bytes, 1, 2**63 - 1, whole=True)
        if self.age_s is None and self.bytes is None and not self.unknown:
            raise Invalid("retain says an age (age_s), a size (bytes), or both", hint=_HINT)


class Thresholds(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """When a compaction is worth its while.

    Fragments of which less than ``live_share_min`` lives are rewritten. A log is not asked again
    before ``new_records_min`` records have come.
    """

    what: ClassVar[str] = "thresholds"

    live_share_min: Share | None = None
    new_records_min: Natural | None = None

    def __post_init__(self) -> None:
        _check_number("thresholds.live_share_min", self.live_share_min, 0, 1, above=True)
        _check_number("thresholds.new_records_min", self.new_records_min, 0, 2**63 - 1, whole=True)


class Policy(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a log. The fields after the first three are the library's own."""

    what: ClassVar[str] = "policy"

    live: Live | None = None
    retain: Retention | None = None
    thresholds: Thresholds | None = None
    judged: Natural | None = None
    epoch_us: Natural | None = None
    writer: str | None = None
    format: str | None = None
    write_id: str | None = None
    removed: bool = False

    @property
    def entries(self) -> tuple[StoredObject, ...]:
        parts = (self.live, self.retain, self.thresholds)
        return tuple(part for part in parts if part is not None)

    @property
    def live_share_min(self) -> float:
        """Fragments of which less than this lives are rewritten."""
        share = None if self.thresholds is None else self.thresholds.live_share_min
        return LIVE_SHARE_MIN if share is None else share

    @property
    def new_records_min(self) -> int:
        """How many records must have come before the rule is asked again.

        By default one. With tombstones none: they become due by time alone.
        """
        records = None if self.thresholds is None else self.thresholds.new_records_min
        if records is not None:
            return records
        return 0 if self.live is not None and self.live.tombstone is not None else 1

    def is_due(self, first_offset: int, tail: int) -> bool:
        """Whether the rule is to be asked about a log that spans these offsets."""
        if self.live is None:
            return False
        return tail - max(self.judged or 0, first_offset) >= self.new_records_min

    def check_useful(self) -> None:
        """Refuse to store one that says nothing, or half of something."""
        if self.live is None and self.retain is None:
            raise Invalid("a policy says what lives, or what is retained", hint=_HINT)
        if self.live is None and self.thresholds is not None:
            raise Invalid("thresholds are about what lives, and nothing says that", hint=_HINT)

    def to_dict(self) -> dict[str, object]:
        """What was set, ready for JSON."""
        return {
            name: msgspec.json.decode(part.to_json())
            for name in _TO_BE_SET
            if (part := getattr(self, name)) is not None
        }

    @classmethod
    def from_text(cls, data: bytes | str) -> Policy:
        """A policy that a person has written. ``Invalid`` for anything that is not known."""
        try:
            policy = cls.from_json(data)
        except Corrupt as error:
            raise Invalid(str(error), hint=_HINT) from None
        for name, known in _strangers(policy):
            near = get_close_matches(name.rpartition(".")[2], known, 1)
            raise Invalid(
                f"a policy has no field {name!r}",
                hint=f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(known)}.",
                actual=name,
            )
        for name in (f for f in cls.__struct_fields__ if f not in (*_TO_BE_SET, "unknown")):
            if getattr(policy, name):
                raise Invalid(f"{name!r} of a policy is not for you to set", hint="Leave it out.")
        policy.check_useful()
        return policy


def _strangers(policy: Policy) -> Iterator[tuple[str, list[str]]]:
    """The fields that nobody knows, and those that there are in their place."""
    for name in policy.unknown or ():
        yield name, [*_TO_BE_SET]
    for place in _TO_BE_SET:
        part: StoredObject | None = getattr(policy, place)
        if part is None:
            continue
        known = [each for each in part.__struct_fields__ if each != "unknown"]
        for name in part.unknown or ():
            yield f"{place}.{name}", known


def _check_text(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not value.strip():
        raise Invalid(f"{name} is SQL, not {value!r:.80}", hint=_HINT)
    if len(value) > SQL_CHARACTERS_MAX:
        raise Invalid(f"{name} is longer than {SQL_CHARACTERS_MAX:,} characters", hint=_HINT)


def _check_number(
    name: str, value: object, low: float, high: float, *, above: bool = False, whole: bool = False
) -> None:
    if value is None:
        return
    kind = int if whole else (int, float)
    bounds = f"{'above' if above else 'at least'} {low:g}, at most {high:g}"
    if isinstance(value, bool) or not isinstance(value, kind) or not math.isfinite(value):
        raise Invalid(f"{name} is a {'whole ' if whole else ''}number, not {value!r:.80}")
    if not low <= value <= high or (above and value == low):
        raise Invalid(f"{name} is {bounds}, not {value!r}", hint=_HINT, actual=value)
