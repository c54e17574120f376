"""The first phase of ``materialize``: which logs have records that are not merged yet."""

from collections.abc import Iterator, Sequence

from stratalog.blocking import loop_thread
from stratalog.errors import Conflict, Corrupt, Invalid, NotFound, StratalogError
from stratalog.herd import log_store
from stratalog.objectlog.stored import MANIFEST_PATH
from stratalog.objectlog.tree import Window, missing
from stratalog.ordered import gather_bounded
from stratalog.pipeline.jobs import LOGS_AT_ONCE, HerdJob, LogRef, Trouble, resolve
from stratalog.pipeline.materialize.merge_job import Work
from stratalog.pipeline.outputs import Outputs
from stratalog.pipeline.read import Part, part_of
from stratalog.pipeline.spark import below


class Planner:
    def __init__(self, herd: HerdJob, outputs: Outputs, job: str, identity: str | None) -> None:
        """``identity`` is that of the merge, if it has one."""
        self._herd = herd
        self._outputs = outputs
        self._job = job
        self._identity = identity
        self._other_merge: str | None = None
        self._is_listed = False
        self._named: dict[str, str] = {}
        self.unchanged = 0
        self.caught_up = 0

    def find(self, logs: Sequence[str] | None, log_ids: Sequence[str] | None) -> list[LogRef]:
        """The logs by name or by id, which are there or a trouble; or all of the catalogue."""
        if logs is not None:
            return [LogRef(name) for name in dict.fromkeys(logs)]
        if log_ids is not None:
            return [LogRef(None, log_id) for log_id in dict.fromkeys(log_ids)]
        self._is_listed = True
        return self._herd.find()

    def plan(self, refs: Sequence[LogRef]) -> list[Work]:
        """Those of these logs that have news. ``Invalid`` if another merge made their outputs."""
        found = loop_thread().run(lambda: gather_bounded(refs, self._look, LOGS_AT_ONCE))
        self._herd.troubles += [each for each in found if isinstance(each, Trouble)]
        if self._other_merge is not None:
            raise Invalid(
                f"the job {self._job!r} has merged by another rule until now",
                hint="Give the new rule another job name and a cursor of its own.",
                expected=self._other_merge,
                actual=self._identity,
            )
        return [*self._without_twins([each for each in found if isinstance(each, Work)])]

    async def _look(self, ref: LogRef) -> Work | Trouble | None:
        """What there is to do for a log, if anything."""
        try:
            try:
                ref, _ = await resolve(self._herd.root, ref)
            except NotFound:
                if self._is_listed:  # the catalogue lists names of logs that were dropped, too
                    return None
                raise
            return await self._planned_again(ref)
        except StratalogError as error:
            return Trouble(ref.label, error)

    async def _planned_again(self, ref: LogRef) -> Work | None:
        """Planned twice if a node of the tree is gone: a collection may have replaced it."""
        try:
            return await self._planned(ref)
        except NotFound as gone:
            if not _is_of_a_node(gone):
                raise
        try:
            return await self._planned(ref)
        except NotFound as gone:
            raise (missing(gone.path) if _is_of_a_node(gone) else gone) from None

    async def _planned(self, ref: LogRef) -> Work | None:
        store = log_store(self._herd.root, ref.id)
        state, manifest = await self._outputs.look(ref.id, ref.name)
        before = None if state.output is None else state.output.merge
        if None not in (before, self._identity) and before != self._identity:
            self._other_merge = before  # this is no matter of one log
        if state.records:
            url = below(self._herd.place, f"logs/{ref.log_id}")
            window = Window(state.start, state.limit)
            part = await part_of(store, url, manifest, window, log=state.name)
            _check_whole(part)
            return Work(state, part)
        if state.is_behind and state.output is not None:
            await self._outputs.advance(state, state.output)
            self.caught_up += 1
        self.unchanged += 1
        return None

    def _without_twins(self, works: Sequence[Work]) -> Iterator[Work]:
        """Rows carry the names of their logs, so no two logs of one name go together."""
        for work in works:
            log_id = self._named.setdefault(work.name, work.state.log_id)
            if log_id == work.state.log_id:
                yield work
                continue
            error = Conflict(
                f"the logs {log_id} and {work.state.log_id} are both called {work.name!r}",
                hint="One of them is about to be destroyed. Run again without it.",
            )
            self._herd.troubles.append(Trouble(work.state.log_id, error))


def _check_whole(part: Part) -> None:
    """Refuse a stretch with a hole: what is not read now is never merged."""
    at, limit = part.window.from_offset, part.window.to_offset
    for fragment in part.fragments:
        if fragment.start.offset > at:
            break
        at = fragment.limit.offset
    if limit is None or at < limit:
        raise Corrupt(f"the records from {at} to {limit} are not in the tree", path=MANIFEST_PATH)


def _is_of_a_node(gone: NotFound) -> bool:
    """Whether a node of a log's tree is not there, in contrast to the log."""
    return "/snapshot/" in f"/{gone.path}"
