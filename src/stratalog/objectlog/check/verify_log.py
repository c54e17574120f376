"""Verify: that a log is what it promises to be, shown from its stored bytes alone.

    structure           manifest, snapshots and fragments are there, readable, and fit together
    sums                every record is hashed; fragments, snapshots and manifest add up to it
    continuity          offsets without a gap, times that never go back, fragments numbered in turn
    self-description    records that say who wrote them as which one (``self_describing``) are
                        there once, in order, and none is missing

The first three are what a scrub examines. The fourth is looked at in the same pass, and what the
hashed rows add up to is compared with the manifest once more as a whole. Read-only.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from stratalog.errors import Corrupt, NotFound
from stratalog.objectlog.check.damage import Damage, DamageKind
from stratalog.objectlog.check.fragment_check import examine_fragment
from stratalog.objectlog.check.numbering import (
    Broken,
    DescriptionCheck,
    Oddity,
    Stretch,
    stretches_of,
)
from stratalog.objectlog.check.scrub_log import scrub
from stratalog.objectlog.check.scrub_read import LocalExaminer
from stratalog.objectlog.check.scrub_report import ScrubReport
from stratalog.objectlog.options import ScrubOptions
from stratalog.objectlog.stored import (
    FIRST_OFFSET,
    Fragment,
    Manifest,
    decode_fragment,
    load_manifest,
)
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import PatientStore, Store, StoreLike, open_store

OPTIONS = ScrubOptions(processes=0)

CheckName = Literal["structure", "sums", "continuity", "self-description"]
OnProgress = Callable[[int, int], None]
"""Called with how many records were examined and how many there are."""

_SUMS = frozenset({DamageKind.MANIFEST_SUM, DamageKind.SNAPSHOT_SUM, DamageKind.FRAGMENT_SUM})
_CONTINUITY = frozenset(
    {
        DamageKind.MANIFEST_RANGE,
        DamageKind.MANIFEST_TIME,
        DamageKind.SEQUENCE_GAP,
        DamageKind.SNAPSHOT_RANGE,
        DamageKind.SNAPSHOT_TIME,
        DamageKind.FRAGMENT_COUNT,
        DamageKind.FRAGMENT_OFFSETS,
        DamageKind.FRAGMENT_TIME,
    }
)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One of the four, and what it rests on."""

    name: CheckName
    held: bool
    evidence: str


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was shown."""

    url: str
    checks: tuple[Check, ...]
    first_offset: int
    limit_offset: int
    records: int
    fragments: int
    snapshots: int
    num_bytes: int
    setsum: str | None
    """What the manifest promises."""

    collected: str | None
    hashed: str | None
    """What the rows add up to. None if the log was collected or compacted while they were read."""

    described_records: int
    described_writers: int
    damages: tuple[Damage, ...]
    remarks: tuple[Damage, ...]
    oddities: tuple[Oddity, ...]

    @property
    def proven(self) -> bool:
        return all(check.held for check in self.checks)

    def to_dict(self) -> dict[str, object]:
        """Everything, ready for JSON."""
        return {
            **msgspec.structs.asdict(self),
            "proven": self.proven,
            "damages": [damage.to_dict() for damage in self.damages],
            "remarks": [remark.to_dict() for remark in self.remarks],
            "oddities": [
                {**msgspec.structs.asdict(o), "meaning": o.meaning} for o in self.oddities
            ],
        }


async def verify(
    url: StoreLike,
    *,
    on_progress: OnProgress | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> VerifyReport:
    """Show that a log is what it promises to be, or say what is not. ``NotFound`` if there is none.

    It ends where the log ended when it began, reads everything once, and writes nothing.
    """
    store = PatientStore(open_store(url), runtime, OPTIONS.timeout_s)
    manifest = await _readable_manifest(store)
    examiner = _Examiner(store, OPTIONS.fragments_max, runtime)
    description = DescriptionCheck(FIRST_OFFSET if manifest is None else manifest.first_offset)
    added_up_to = 0 if manifest is None else manifest.first_offset
    limit = None if manifest is None else manifest.tail.offset
    total = EMPTY  # of the rows of the manifest's fragments, taken in the order of the log

    def take_over(below: int | None) -> None:
        nonlocal added_up_to, total
        for part in examiner.take(below):
            description.add(part.entry, part.stretches, part.broken)
            if part.entry.start.offset == added_up_to != limit:
                added_up_to = part.entry.limit.offset
                total += part.entry.setsum

    def progress(report: ScrubReport) -> None:
        take_over(report.next_offset)
        if on_progress is not None:
            whole = report.limit_offset - report.first_offset
            on_progress(report.next_offset - report.first_offset, whole)

    found = await scrub(
        url, options=OPTIONS, on_progress=progress, examiner=examiner, runtime=runtime
    )
    take_over(None)
    hashed = total if added_up_to == limit else None  # not all of it was there to be read
    if manifest is not None:
        current = await _readable_manifest(store)
        if current is not None and current.compacted != manifest.compacted:
            hashed = None  # records have gone from the middle of the log since
    return _report(found, manifest, hashed, description)


async def _readable_manifest(store: Store) -> Manifest | None:
    """The manifest whose sum is compared. None if it is damaged, which the scrub reports better."""
    try:
        return (await load_manifest(store))[0]
    except (Corrupt, NotFound):
        return None


@dataclass(slots=True)
class _Part:
    """What is remembered of a good fragment until its turn has come."""

    entry: Fragment
    stretches: Sequence[Stretch]
    broken: Sequence[Broken]


class _Examiner(LocalExaminer):
    """Reads fragments for a scrub, and keeps what their records say about themselves."""

    def __init__(self, store: Store, fragments_max: int, runtime: Runtime) -> None:
        super().__init__(store, True, fragments_max, runtime)
        self._parts: list[tuple[int, int, _Part]] = []
        self._taken = 0

    async def _examine(self, entry: Fragment) -> tuple[tuple[Damage, ...], int]:
        found, size = await self._read(entry, lambda data: (_examine(entry, data), len(data)))
        if not isinstance(found, _Part):
            return found, size
        self._taken += 1
        heapq.heappush(self._parts, (entry.start.offset, self._taken, found))
        return (), size

    def take(self, below: int | None) -> list[_Part]:
        """The fragments before an offset, in the order of the log, and forget them."""
        taken: list[_Part] = []
        while self._parts and (below is None or self._parts[0][0] < below):
            taken.append(heapq.heappop(self._parts)[2])
        return taken


def _examine(entry: Fragment, data: bytes) -> _Part | tuple[Damage, ...]:
    damages = tuple(examine_fragment(data, entry))
    if damages:
        return damages
    return _Part(entry, *stretches_of(decode_fragment(data, entry, verify=False)))


def _report(
    found: ScrubReport,
    manifest: Manifest | None,
    hashed: Setsum | None,
    description: DescriptionCheck,
) -> VerifyReport:
    oddities = description.oddities()
    collected = EMPTY if manifest is None else manifest.collected_sum
    balances = manifest is None or hashed is None or hashed + collected == manifest.setsum
    return VerifyReport(
        url=found.url,
        checks=_checks(found, balances, hashed, description, oddities),
        first_offset=found.first_offset,
        limit_offset=found.limit_offset,
        records=found.records,
        fragments=found.fragments,
        snapshots=found.snapshots,
        num_bytes=found.num_bytes,
        setsum=None if manifest is None else manifest.setsum.hexdigest(),
        collected=None if manifest is None else collected.hexdigest(),
        hashed=None if hashed is None else hashed.hexdigest(),
        described_records=description.records,
        described_writers=len(description.writers),
        damages=found.damages,
        remarks=found.remarks,
        oddities=oddities,
    )


def _checks(
    found: ScrubReport,
    balances: bool,
    hashed: Setsum | None,
    description: DescriptionCheck,
    oddities: Sequence[Oddity],
) -> tuple[Check, ...]:
    """Each damage counts for the check that it belongs to; a scrub that stopped shows nothing.

    Without the structure there is no showing the rest, and a fragment with any damage was not
    shown to add up.
    """
    kinds = [each.kind for each in found.damages]
    in_structure = [kind.value for kind in kinds if kind not in _SUMS | _CONTINUITY]
    in_sums = [
        kind.value
        for kind in kinds
        if kind not in _CONTINUITY or kind.value.startswith("fragment-")
    ]
    in_continuity = [kind.value for kind in kinds if kind not in _SUMS]
    added_up = "as the manifest says" if hashed is not None else "each fragment as its entry says"
    fragments, snapshots = _count(found.fragments, "fragment"), _count(found.snapshots, "snapshot")
    records, described = _count(found.records, "record"), _count(description.records, "record")
    writers = _count(len(description.writers), "writer")
    offsets = f"offsets {found.first_offset:,} to {found.limit_offset - 1:,}"

    def check(name: CheckName, against: Sequence[str], evidence: str) -> Check:
        if against:
            return Check(name=name, held=False, evidence=f"found {_tally(against)}")
        if not found.finished:
            stopped = f"stopped before offset {found.next_offset:,}: too much is damaged"
            return Check(name=name, held=False, evidence=stopped)
        return Check(name=name, held=True, evidence=evidence)

    unbalanced = [] if balances else ["records that do not add up to what the manifest says"]
    return (
        check("structure", in_structure, f"{fragments} below {snapshots}"),
        check("sums", in_sums or unbalanced, f"{records} hashed, adding up {added_up}"),
        check(
            "continuity",
            in_continuity,
            offsets if found.limit_offset > found.first_offset else "no offsets",
        ),
        check(
            "self-description",
            [each.kind for each in oddities],
            f"{described} of {writers}" if description.records else "no record describes itself",
        ),
    )


def _tally(names: Sequence[str]) -> str:
    """Each name once, with how often it came if that was more than once."""
    return ", ".join(
        name if count == 1 else f"{count:,} {name}" for name, count in Counter(names).items()
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
