"""What a log costs a month: arithmetic over bytes, requests and a list of prices.

A list of prices is a file of JSON or TOML with these fields, in one currency:

    storage_per_gb_month       for what is stored
    class_a_per_1000           puts and listings
    class_b_per_1000           reads
    delete_per_1000            0 with most providers
    egress_per_gb              bytes read, if they leave the provider's region
    ingress_per_gb             bytes written; 0 with most providers
    gb_bytes                   what the provider calls a GB; 2**30 with the large ones
    currency                   a word to print

Requests come from a program that ran (``stats`` of writers and readers), or from expected rates.
Rates give an upper bound: appends that come together share a fragment.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from stratalog.errors import Invalid
from stratalog.objectlog.cost.storage import Stored
from stratalog.objectlog.options import WriterOptions
from stratalog.objectlog.stored import OFFSET_MAX
from stratalog.store import Usage

MONTH_S = 365.25 / 12 * 86_400
MANIFEST_BYTES = 5_000
FRAGMENT_OVERHEAD_BYTES = 500
RATE_MAX = 1e15
POLL_S_MIN = 1e-6
FIELDS_HINT = "docs/guide/cost.md shows the fields of the file."


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a provider charges."""

    storage_per_gb_month: float
    class_a_per_1000: float
    class_b_per_1000: float
    delete_per_1000: float = 0.0
    egress_per_gb: float = 0.0
    ingress_per_gb: float = 0.0
    gb_bytes: int = 2**30
    currency: str = "USD"

    @classmethod
    def from_text(cls, data: bytes) -> Prices:
        """From JSON or TOML. ``Invalid`` if it is neither, or lacks a price."""
        try:
            fields: object = msgspec.json.decode(data)
        except (ValueError, RecursionError):
            fields = _from_toml(data)
        try:
            prices = msgspec.convert(fields, cls)
        except ValueError as error:
            raise Invalid(f"not a list of prices: {error}", hint=FIELDS_HINT) from None
        prices._check()
        return prices

    def _check(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float) and not 0 <= value < float("inf"):
                raise Invalid(f"not a price: {name} is {value}", hint=FIELDS_HINT)
        if self.gb_bytes < 1:
            raise Invalid(f"not a size: gb_bytes is {self.gb_bytes}", hint=FIELDS_HINT)


def _from_toml(data: bytes) -> dict[str, object]:
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise Invalid(
            f"not a list of prices, neither in JSON nor in TOML: {error}", hint=FIELDS_HINT
        ) from None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a writer's or reader's ``stats`` that a bill needs. The rest is passed over."""

    elapsed_us: int
    class_a_requests: int = 0
    class_b_requests: int = 0
    free_requests: int = 0
    bytes_written: int = 0
    bytes_read: int = 0

    @classmethod
    def from_json(cls, data: bytes) -> Measured:
        """``Invalid`` if it is something else."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (ValueError, RecursionError) as error:
            raise Invalid(
                f"not the stats of a writer or reader: {error}",
                hint="Write them with msgspec.json.encode(log.stats).",
            ) from None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= OFFSET_MAX:
                raise Invalid(f"not the stats of a writer or reader: {name} is {_short(value)}")
        if self.elapsed_us == 0:
            raise Invalid(
                "stats of no time at all cannot be projected to a month",
                hint="Write them when the writer or reader has been open for a while.",
            )

    @property
    def a_month(self) -> Usage:
        """What a month like this would need."""
        times = MONTH_S * 1e6 / self.elapsed_us
        return Usage(
            round(self.class_a_requests * times),
            round(self.class_b_requests * times),
            round(self.free_requests * times),
            round(self.bytes_written * times),
            round(self.bytes_read * times),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Expected rates of a log."""

    appends_per_second: float = 0.0
    append_bytes: int = 0
    interval_s: float = 0.0
    """`WriterOptions.interval_s`: at most one fragment and one manifest in that time."""

    followers: int = 0
    poll_s: float = 1.0
    """How often a follower looks when nothing comes: `ReaderOptions.poll_s_max`."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise Invalid(f"a rate is a number: {name} is {_short(value)}")
            if not 0 <= value <= RATE_MAX:
                raise Invalid(f"a rate is from 0 to {RATE_MAX:g}: {name} is {_short(value)}")
        if self.poll_s < POLL_S_MIN:
            raise Invalid(f"poll_s is at least {POLL_S_MIN:g}, not {self.poll_s:g}")

    @property
    def a_month(self) -> Usage:
        """Each fragment is a put, and so is each manifest; a snapshot takes over several entries.

        A follower reads each fragment, and the manifest as often as it polls.
        """
        commits = self.appends_per_second
        if self.interval_s:
            commits = min(commits, 1 / self.interval_s)
        snapshots = commits / WriterOptions().rollup_entries
        polls = max(commits, 1 / self.poll_s)
        fragments_bytes = (
            self.appends_per_second * self.append_bytes + commits * FRAGMENT_OVERHEAD_BYTES
        )
        written = fragments_bytes + commits * MANIFEST_BYTES
        read = fragments_bytes + polls * MANIFEST_BYTES
        return Usage(
            class_a_requests=round((2 * commits + snapshots) * MONTH_S),
            class_b_requests=round(self.followers * (commits + polls) * MONTH_S),
            bytes_written=round(written * MONTH_S),
            bytes_read=round(self.followers * read * MONTH_S),
        )


def _short(value: object) -> str:
    """For a message. A number of thousands of digits cannot even be printed."""
    if isinstance(value, int) and abs(value) > OFFSET_MAX:
        return "too large" if value > 0 else "negative"
    return repr(value)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a bill."""

    what: str
    amount: float
    unit: str
    price: float
    cost: float


@dataclass(frozen=True, slots=True)
class Bill:
    """What a month costs."""

    currency: str
    lines: tuple[Line, ...]

    @property
    def total(self) -> float:
        return sum(line.cost for line in self.lines)


def bill(prices: Prices, stored_bytes: int, usage: Usage | None = None) -> Bill:
    """The bill of a month in which so much is stored and so much is asked for."""
    gb, requests = prices.gb_bytes, "1,000 requests"
    rows = [("storage", stored_bytes / gb, "GB", prices.storage_per_gb_month)]
    if usage is not None:
        rows += [
            ("class A requests", usage.class_a_requests / 1000, requests, prices.class_a_per_1000),
            ("class B requests", usage.class_b_requests / 1000, requests, prices.class_b_per_1000),
            ("deletions", usage.free_requests / 1000, requests, prices.delete_per_1000),
            ("bytes written", usage.bytes_written / gb, "GB", prices.ingress_per_gb),
            ("bytes read", usage.bytes_read / gb, "GB", prices.egress_per_gb),
        ]
    lines = (Line(what, amount, unit, price, amount * price) for what, amount, unit, price in rows)
    return Bill(prices.currency, tuple(lines))


def storage_cost(prices: Prices, stored: Stored) -> Mapping[str, float]:
    """What each class of objects costs a month."""
    return {
        name: amount.bytes / prices.gb_bytes * prices.storage_per_gb_month
        for name, amount in stored.amounts.items()
    }
