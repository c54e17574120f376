"""What a scrub of a herd has found: put together from the rows that Spark has added up."""

import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa

from stratalog.objectlog.check import Damage, DamageKind, ScrubReport
from stratalog.objectlog.stored import MANIFEST_PATH
from stratalog.pipeline.check.audit import OK, UNREAD, AuditRow
from stratalog.pipeline.check.findings import describe
from stratalog.pipeline.check.scrub_rows import COLUMNS, COUNTS, Note, Walked
from stratalog.pipeline.jobs import Held, LogRef
from stratalog.setsum import Setsum
from stratalog.store import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class LogScrub:
    """What was found in one log."""

    log: str | None
    log_id: str
    first_offset: int = 0
    limit_offset: int = 0
    fragments: int = 0
    snapshots: int = 0
    records: int = 0
    num_bytes: int = 0
    let_go: int = 0
    """How many fragments a collection took before they were read."""

    expected_sum: str | None = None
    """What the manifest says that its records add up to. None if the manifest is damaged."""

    actual_sum: str | None = None
    """What they do add up to. None if not all of them could be hashed."""

    collected_sum: str | None = None
    """What all records add up to that are not there any more, as the manifest says."""

    damages: tuple[Damage, ...] = ()
    remarks: tuple[Damage, ...] = ()
    trouble: str | None = None
    """Why the log was not scrubbed, or not to its end."""

    @property
    def label(self) -> str:
        return self.log or self.log_id

    @property
    def clean(self) -> bool:
        return not self.damages and self.trouble is None


@dataclass(frozen=True, slots=True, kw_only=True)
class HerdScrub(Held):
    """What was found in all of them."""

    run: str
    """The name of the audit."""

    logs: tuple[LogScrub, ...]
    gone: int
    """How many logs were dropped while this went on."""

    seconds: float
    usage: Usage = field(default_factory=Usage)

    @property
    def fragments(self) -> int:
        return sum(each.fragments for each in self.logs)

    @property
    def compared(self) -> tuple[LogScrub, ...]:
        """The logs whose records were all hashed."""
        return tuple(each for each in self.logs if each.expected_sum and each.actual_sum)

    @property
    def expected_sum(self) -> str:
        """What the manifests of the compared logs say that all their records add up to."""
        return _total(each.expected_sum for each in self.compared)

    @property
    def actual_sum(self) -> str:
        """What these do add up to."""
        return _total(each.actual_sum for each in self.compared)

    @property
    def collected_sum(self) -> str:
        """What all collected records of these logs add up to, as the manifests say."""
        return _total(each.collected_sum for each in self.compared)

    @property
    def damaged(self) -> tuple[LogScrub, ...]:
        return tuple(each for each in self.logs if each.damages)

    @property
    def damages(self) -> int:
        return sum(len(each.damages) for each in self.logs)

    @property
    def troubles(self) -> tuple[str, ...]:
        return tuple(
            f"the log {each.label}: {each.trouble}"
            for each in self.logs
            if each.trouble is not None
        )

    @property
    def clean(self) -> bool:
        """Whether all of the herd was read and nothing is damaged."""
        return all(each.clean for each in self.logs)


class AddedUp:
    """What the tasks have said, and what Spark has added up: one row a log."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.parts: list[str] = []
        self._walked: dict[str, Walked] = {}
        self._damages: defaultdict[str, list[Damage]] = defaultdict(list)
        self._sums: dict[str, dict[str, Any]] = {}

    def add_note(self, log_id: str, data: bytes) -> None:
        note = cast(Note, pickle.loads(data))
        if isinstance(note, Walked):
            self._walked[log_id] = note
        elif isinstance(note, Usage):
            self.usage += note
        elif isinstance(note, str):
            self.parts.append(note)
        else:
            self._damages[log_id] += note

    def add_rows(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            self._sums[row["log_id"]] = row
            for data in row["notes"]:
                self.add_note(row["log_id"], data)

    def logs(self, refs: Sequence[LogRef]) -> list[LogScrub | Walked]:
        """Each of these logs as it was found; as it was walked, if that failed."""
        walked = [self._judged(log_id, each) for log_id, each in self._walked.items()]
        names = {each.ref.name for each in self._walked.values()}
        unreported = [
            LogScrub(log=ref.name, log_id=ref.log_id or "", trouble="no task has reported it")
            for ref in refs
            if ref.name not in names and ref.log_id not in self._walked
        ]
        return [*walked, *unreported]

    def _judged(self, log_id: str, walked: Walked) -> LogScrub | Walked:
        report, ref = walked.report, walked.ref
        if report is None or ref.log_id is None:
            return walked
        row = self._sums.get(log_id, _NOTHING)
        is_whole = walked.expected is not None and row["hashed"] == walked.count
        columns = b"".join(int(row[name]).to_bytes(4, "little") for name in COLUMNS)
        actual = Setsum(columns) if is_whole else None
        found = [*report.damages, *self._damages[log_id]]
        if not found and actual is not None and walked.expected is not None:
            found += _unbalanced(walked.expected, actual)
        by_identity = {each.identity: each for each in reversed(found)}
        trouble = None if report.finished else "stopped: too much is damaged"
        if not found and trouble is None and not is_whole:
            trouble = _incomplete(walked, report, row["hashed"])
        return LogScrub(
            log=ref.name,
            log_id=ref.log_id,
            first_offset=report.first_offset,
            limit_offset=report.limit_offset,
            snapshots=report.snapshots,
            expected_sum=None if walked.expected is None else walked.expected.hexdigest(),
            actual_sum=None if actual is None else actual.hexdigest(),
            collected_sum=None if walked.expected is None else walked.collected.hexdigest(),
            damages=tuple(sorted(by_identity.values(), key=_in_the_log)),
            remarks=report.remarks,
            trouble=trouble,
            **{name: row[name] for name in ("fragments", "records", "num_bytes", "let_go")},
        )


_NOTHING = dict.fromkeys((*COLUMNS, *COUNTS), 0)


def _incomplete(walked: Walked, report: ScrubReport, hashed: int) -> str | None:
    """Why a log that looks sound was not compared. None if a collection cut it meanwhile."""
    if walked.expected is None or report.first_offset > walked.first_offset:
        return None
    return f"{hashed:,} of its {walked.count:,} records were hashed; scrub it again"


def _unbalanced(expected: Setsum, actual: Setsum) -> Iterator[Damage]:
    """Each part holds and the whole does not."""
    if expected != actual:
        yield Damage(
            kind=DamageKind.MANIFEST_SUM,
            path=MANIFEST_PATH,
            expected=expected.hexdigest(),
            actual=actual.hexdigest(),
            detail="what the records add up to",
        )


def _in_the_log(damage: Damage) -> tuple[int, str, str]:
    """In log order, those of the root and beside it first."""
    return (-1 if damage.start is None else damage.start, damage.path, damage.kind.value)


def _total(sums: Iterable[str | None]) -> str:
    return Setsum.total(Setsum.from_hexdigest(each) for each in sums if each).hexdigest()


def audit_rows(log: LogScrub) -> Iterator[AuditRow]:
    """The row of a log, and one for each oddity in it besides those of fragments."""
    verdict, detail = OK, ""
    if log.damages:
        verdict = log.damages[0].kind.value
        detail = f"{len(log.damages)} damage{'' if len(log.damages) == 1 else 's'}"
    elif log.trouble is not None:
        verdict, detail = UNREAD, log.trouble
    yield AuditRow(
        object="log",
        log=log.log,
        log_id=log.log_id,
        path=MANIFEST_PATH,
        start=log.first_offset,
        limit=log.limit_offset,
        records=log.records,
        num_bytes=log.num_bytes,
        expected_sum=log.expected_sum,
        actual_sum=log.actual_sum,
        verdict=verdict,
        detail=detail,
    )
    for each in (*log.damages, *log.remarks):
        if not _is_of_a_fragment(each):
            yield AuditRow(
                object="other",
                log=log.log,
                log_id=log.log_id,
                path=each.path,
                start=each.start,
                limit=each.limit,
                verdict=each.kind.value,
                detail=describe(each),
            )


def _is_of_a_fragment(damage: Damage) -> bool:
    """Whether the row of a fragment has it. Names are compared when the tree is walked."""
    if not damage.path.startswith("log/") or damage.kind is DamageKind.FRAGMENT_PATH:
        return False
    return damage.kind.value.startswith("fragment-") or damage.kind is DamageKind.OBJECT_REFUSED
