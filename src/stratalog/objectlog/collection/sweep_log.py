"""Sweep: deleting what no manifest reaches, beside writers that may sleep for a week.

Crashed and fenced writers leave fragments that are never linked, folds leave the nodes that they
took over, interrupted collections leave both. The steps of a sweep, whose order matters:

    1  read the manifest, then the plan      what is being collected is the collector's
    2  list, and walk the tree beside it     listed and not reached: a candidate
    3  list the stages                       a long job's uploads are spared
    4  raise the epoch, by CAS               what was uploaded before cannot be linked any more
    5  walk the newest manifest              what was linked until then is no candidate
    6  list the pins and walk them           what they hold stays, although nothing links it
    7  read what the rest says of the log    an older manifest may have been put back
    8  delete the rest

Why no object is deleted that is needed:

1  A writer. Every candidate was listed before the epoch was raised, so its upload began before. A
   writer links only what it began to upload in the manifest's own epoch. A candidate is therefore
   linked in the manifest of step 5 or never, however long its writer sleeps (``sweep_epoch``).
2  A long job. It registers its stage before the first upload, so a listing that follows the one of
   its uploads shows the stage.
3  A pin. It counts if the manifest still has what it points to after it was written. One that is
   too young for the listing of step 6 holds only what the manifest of step 5 leads to.
4  A released pin. What only it held is left to the collector, which clears the pin.
5  A newer manifest, in whose place an older one was put. What shows that it was there stops the
   sweep; what only it may have linked is spared (``older_manifest``).

Objects whose name is not a log's are reported and left alone.
``docs/design/005-collection.md`` has the whole protocol.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from stratalog.errors import Conflict, Corrupt, NotFound
from stratalog.objectlog.collection.older_manifest import (
    Standing,
    check_cursors,
    check_pins,
    older,
    standing,
)
from stratalog.objectlog.collection.sweep_epoch import raise_epoch
from stratalog.objectlog.collection.unlinked_objects import (
    UNKNOWN_PATHS_MAX,
    Amount,
    OnLeft,
    Survey,
)
from stratalog.objectlog.holds import CursorStore, PinStore, StoredUploadGuard, UploadGuardStore
from stratalog.objectlog.options import SweepOptions
from stratalog.objectlog.stored import (
    GARBAGE_PATH,
    Kind,
    LinkedMark,
    Manifest,
    load_garbage,
    load_manifest,
    own,
    read_mark,
)
from stratalog.objectlog.tree import DELETE_BATCH, Tree, delete_surely, on_newest_tree
from stratalog.ordered import gather_bounded
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Patience, PatientStore, Store, StoreLike, open_store

DEFAULT_OPTIONS = SweepOptions()
STAGES_AT_ONCE = 32
READS_AT_ONCE = 32
NOTHING = Amount()
GAP_HINT = (
    "Restore it first, or put the newest manifest back: what took its place may look unlinked. "
    "`stratalog scrub` names what else is missing. --older-manifest deletes all the same."
)


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """How far a sweep is."""

    listed: int
    deleted: int


OnProgress = Callable[[SweepProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What a sweep found and did; after a dry run, what it would have done."""

    url: str
    dry_run: bool
    rounds: int
    epoch_before: int
    epoch_after: int
    listed: Amount
    reached: Amount
    """Linked by the manifest, directly or below a snapshot."""

    pinned: Amount
    """Linked by nothing any more, but held by a pin, or waiting for its clearing."""

    pins: tuple[str, ...]
    """The names of these pins."""

    kept: Amount
    """The log's other objects: its manifest, cursors, pins, stages, an empty plan."""

    spared: Mapping[str, Amount]
    """Linked by nothing, but uploaded under a live stage, by its incarnation."""

    sparing: tuple[StoredUploadGuard, ...]
    """These stages, also if they are not live any more."""

    ahead: Amount = NOTHING
    """Linked by nothing and numbered beyond the tail: left over, or linked only by a manifest in
    whose place an older one was put. They go when the tail has passed them."""

    doubtful: tuple[str, ...] = ()
    """The incarnations of those among them that were begun before the newest fragment was linked:
    they may have records that are in the log by now."""

    deleted: Amount
    unknown: Amount
    unknown_paths: tuple[str, ...]
    """The first files that are not the log's. They are left alone."""

    stages: tuple[StoredUploadGuard, ...]
    """The stages that are live."""

    stages_removed: int
    """How many released stages were deleted as well."""


async def sweep(
    url: StoreLike,
    *,
    dry_run: bool = False,
    revoke: Collection[str] = (),
    older_manifest: bool = False,
    on_progress: OnProgress | None = None,
    options: SweepOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> SweepReport:
    """Delete the objects of a log that nothing links and nobody can link any more.

    ``revoke`` names the stages of jobs that are gone. ``Conflict`` while a collection is under
    way. Writers may go on meanwhile; uploads that a sweep overtakes are made again. ``Corrupt`` if
    the manifest is older than what lies beside it; with ``older_manifest`` it was put there on
    purpose, and what only the newer one linked is deleted.
    """
    store = PatientStore(open_store(url), runtime, options.timeout_s)
    revoked = frozenset(revoke)
    return await _Sweep(
        store, options, runtime, dry_run, revoked, on_progress, older_manifest=older_manifest
    ).run()


async def sweep_noting(
    url: StoreLike,
    on_left: OnLeft,
    options: SweepOptions,
    runtime: Runtime,
    *,
    older_manifest: bool = False,
) -> SweepReport:
    """Sweep; ``on_left`` is called with each fragment that only a pin holds."""
    store = PatientStore(open_store(url), runtime, options.timeout_s)
    return await _Sweep(
        store, options, runtime, on_left=on_left, older_manifest=older_manifest
    ).run()


@dataclass(eq=False)
class _Sweep:
    """One sweep, and what it has found in the rounds so far."""

    store: Store
    options: SweepOptions
    runtime: Runtime
    dry_run: bool = False
    revoke: frozenset[str] = frozenset()
    on_progress: OnProgress | None = None
    on_left: OnLeft | None = None
    older_manifest: bool = False

    def __post_init__(self) -> None:
        self._tree = Tree(self.store)
        self._pins = PinStore(self.store, runtime=self.runtime)
        self._cursors = CursorStore(self.store, runtime=self.runtime)
        self._guards = UploadGuardStore(self.store, runtime=self.runtime)
        self._epoch_before = self._epoch = 0
        self._rounds = 0
        self._listed = self._reached = self._pinned = self._kept = Amount()
        self._ahead = self._deleted = self._unknown = Amount()
        self._marks: dict[str, LinkedMark | None] = {}
        self._gaps: set[str | None] = set()
        self._doubtful: set[str] = set()
        self._unknown_paths: list[str] = []
        self._holding: set[str] = set()
        self._spared: dict[str, Amount] = {}
        self._sparing: dict[str, StoredUploadGuard] = {}
        self._stages: list[StoredUploadGuard] = []
        self._over: frozenset[str] = frozenset()

    async def run(self) -> SweepReport:
        cursors, pins = await self._cursors.list(), await self._pins.list_all()
        manifest, _ = await load_manifest(self.store)
        if not self.older_manifest:
            check_cursors(cursors, manifest)
            check_pins(pins, manifest)
        await self._check_swept(manifest)
        self._epoch_before = self._epoch = manifest.sweep_epoch
        await self._revoke_stages()
        after: str | None = ""
        while after is not None:
            survey = await self._find_candidates(after)
            await self._spare_staged(survey)
            manifest = await self._strike_out(survey)
            if survey.candidates and not self.dry_run:
                await self._raise_epoch(manifest.sweep_epoch + 1)
                await self._strike_out(survey)
                await self._delete(survey.candidates)
            self._add_up(survey)
            after = survey.next_after
        return self._report(await self._remove_released())

    async def _revoke_stages(self) -> None:
        revoke = self._guards.load if self.dry_run else self._guards.revoke
        for incarnation in sorted(self.revoke):
            await revoke(incarnation)

    async def _find_candidates(self, after: str) -> Survey:
        """Steps 1 and 2. A collection that deletes what is being walked makes them begin again."""

        async def find(manifest: Manifest) -> Survey:
            await self._check_swept(manifest)
            survey = Survey(self.store, self._tree, self.options.candidates_max, self._tell_listed)
            await survey.take(manifest, after)
            if not self.older_manifest:
                await gather_bounded(survey.absent, self._check_stored, READS_AT_ONCE)
            return survey

        try:
            return await on_newest_tree(self.store, find)
        except Corrupt as lost:
            if lost.path in self._gaps:
                raise Corrupt(lost.message, path=lost.path, hint=GAP_HINT) from None
            raise

    async def _check_stored(self, path: str) -> None:
        """Look for a linked fragment that the listing did not show. ``NotFound`` lets the walk
        begin again, and tell a gap from what was collected meanwhile."""
        try:
            await self.store.head(path)
        except NotFound as gone:
            self._gaps.add(gone.path)
            raise

    async def _check_swept(self, manifest: Manifest) -> None:
        """Step 1. The plan is read after the manifest: if there is none, then whatever is
        collected later was still linked in this manifest, and so is no candidate."""
        manifest.check_writable()
        plan, _ = await load_garbage(self.store)
        if plan is not None and not plan.is_empty:
            raise Conflict(
                "a collection of this log is under way, or was interrupted",
                path=GARBAGE_PATH,
                hint="Finish it with `stratalog collect`, then sweep.",
                actual=plan.plan_id,
            )

    async def _spare_staged(self, survey: Survey) -> None:
        """Step 3. The stages are listed after the candidates, each of which is younger than its
        stage."""
        await self._list_stages()
        live = {stage.incarnation: stage for stage in self._live_stages()}
        for path in list(survey.candidates):
            found = own(path)
            if found is not None and found.incarnation in live:
                size = survey.candidates.pop(path)
                before = self._spared.get(found.incarnation, Amount())
                self._spared[found.incarnation] = before + Amount(1, size)
                self._sparing[found.incarnation] = live[found.incarnation]

    async def _list_stages(self) -> None:
        """All stages; those whose batch or job is over are released before they are judged."""
        self._over = frozenset()
        self._stages = await self._guards.list()
        parts = [each for each in self._live_stages() if each.query is not None or each.job]
        if not parts:
            return
        manifest, _ = await load_manifest(self.store)
        live = await self._live_jobs(parts)
        over = [each.incarnation for each in parts if each.is_over(manifest, live)]
        if over and not self.dry_run:
            await gather_bounded(over, self._guards.release, STAGES_AT_ONCE)
            self._stages = await self._guards.list()
        self._over = frozenset(over)

    async def _live_jobs(self, parts: Sequence[StoredUploadGuard]) -> set[str]:
        """The live stages. A job registers its own first, but a listing may still have missed it,
        so one that was not listed is looked for."""
        live = {stage.incarnation for stage in self._live_stages()}
        listed = {stage.incarnation for stage in self._stages}
        for job in sorted({stage.job for stage in parts if stage.job} - listed):
            with contextlib.suppress(NotFound):
                stored = await self._guards.load(job)
                live |= {job} if stored.state == "live" else set()
        return live

    async def _raise_epoch(self, epoch: int) -> None:
        """Step 4. If another sweep has raised it meanwhile, that is as good: it was lower when
        this one had listed its candidates."""
        manifest = await raise_epoch(self.store, epoch, self.runtime, self.options.timeout_s)
        self._epoch = manifest.sweep_epoch

    async def _strike_out(self, survey: Survey) -> Manifest:
        """Steps 5 to 7. They are also done before step 4, for the epoch need not be raised if no
        candidate is left: writers that have linked theirs meanwhile are not disturbed."""
        manifest = await on_newest_tree(self.store, survey.strike_out_linked)
        await self._strike_out_pinned(survey)
        if not self.older_manifest:
            await self._strike_out_ahead(survey, manifest)
        return manifest

    async def _strike_out_pinned(self, survey: Survey) -> None:
        """Step 6. The pins are listed after the manifest was read, as a collector does."""
        for pin in await self._pins.list_all():
            before = survey.pinned
            await survey.strike_out_pinned(pin, self.on_left)
            if survey.pinned != before:
                self._holding.add(pin.name)

    async def _strike_out_ahead(self, survey: Survey, manifest: Manifest) -> None:
        """Step 7. The manifest is younger than the listing, and so than every mark."""
        fragments = [path for path in survey.candidates if _is_fragment(path)]
        unread = [path for path in fragments if path not in self._marks]
        await gather_bounded(unread, partial(self._read_mark, survey), READS_AT_ONCE)
        ahead: set[str | None] = set()
        given_up = self._given_up(manifest)
        for path in fragments:
            found = standing(path, self._marks[path], manifest)
            if found is Standing.NEWER:
                evidence = f"{path}, which nothing links, was begun when there was more"
                raise older(evidence, manifest.tail.offset)
            incarnation = _incarnation_of(path)
            if found is Standing.AHEAD and incarnation not in given_up:
                self._spare_ahead(survey, path)
                ahead.add(incarnation)
                mark = self._marks[path]
                if incarnation and (mark is None or mark.seq_no < manifest.last_seq_no):
                    self._doubtful.add(incarnation)
        for path in [each for each in survey.candidates if _incarnation_of(each) in ahead]:
            if not _is_fragment(path):  # a node that the same manifest may have linked
                self._spare_ahead(survey, path)

    def _given_up(self, manifest: Manifest) -> set[str]:
        """The incarnations of jobs that a person has revoked, or whose batch others have linked."""
        return set(self.revoke) | {
            each.incarnation
            for each in self._stages
            if each.state == "revoked" or each.is_linked(manifest)
        }

    def _spare_ahead(self, survey: Survey, path: str) -> None:
        self._ahead += Amount(1, survey.candidates.pop(path))

    async def _read_mark(self, survey: Survey, path: str) -> None:
        try:
            self._marks[path] = await read_mark(self.store, path, survey.candidates[path])
        except NotFound:  # another sweep was faster
            self._marks[path] = None

    async def _delete(self, candidates: Mapping[str, int]) -> None:
        paths = sorted(candidates)
        for start in range(0, len(paths), DELETE_BATCH):
            batch = paths[start : start + DELETE_BATCH]
            patience = Patience(self.runtime, self.options.timeout_s)
            await delete_surely(self.store, batch, patience)
            self._tell(self._listed.objects, self._deleted.objects + start + len(batch))

    async def _remove_released(self) -> int:
        """A released stage says no more than one that is not there, so it may go at any time."""
        released = [each.incarnation for each in self._stages if each.state == "released"]
        if released and not self.dry_run:
            await self._guards.remove(released)
        return len(released)

    def _live_stages(self) -> list[StoredUploadGuard]:
        return [
            stage
            for stage in self._stages
            if stage.state == "live" and stage.incarnation not in self.revoke | self._over
        ]

    def _add_up(self, survey: Survey) -> None:
        self._rounds += 1
        self._listed += survey.listed
        self._reached += survey.reached
        self._pinned += survey.pinned
        self._kept += survey.kept
        self._unknown += survey.unknown
        self._unknown_paths += survey.unknown_paths[: UNKNOWN_PATHS_MAX - len(self._unknown_paths)]
        self._deleted += Amount(len(survey.candidates), sum(survey.candidates.values()))

    def _tell_listed(self, listed: Amount) -> None:
        self._tell(self._listed.objects + listed.objects, self._deleted.objects)

    def _tell(self, listed: int, deleted: int) -> None:
        if self.on_progress is not None:
            self.on_progress(SweepProgress(listed, deleted))

    def _report(self, stages_removed: int) -> SweepReport:
        return SweepReport(
            url=self.store.url,
            dry_run=self.dry_run,
            rounds=self._rounds,
            epoch_before=self._epoch_before,
            epoch_after=self._epoch,
            listed=self._listed,
            reached=self._reached,
            pinned=self._pinned,
            pins=tuple(sorted(self._holding)),
            kept=self._kept,
            spared=self._spared,
            sparing=tuple(self._sparing.values()),
            ahead=self._ahead,
            doubtful=tuple(sorted(self._doubtful)),
            deleted=self._deleted,
            unknown=self._unknown,
            unknown_paths=tuple(self._unknown_paths),
            stages=tuple(self._live_stages()),
            stages_removed=stages_removed,
        )


def _incarnation_of(path: str) -> str | None:
    found = own(path)
    return None if found is None else found.incarnation


def _is_fragment(path: str) -> bool:
    found = own(path)
    return found is not None and found.kind is Kind.FRAGMENT
