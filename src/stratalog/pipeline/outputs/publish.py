"""Publishing the outputs of a job, log by log, so that every record is merged once.

A version is published in this order (``output`` has the layout):

    1  read OUTPUT          what the next version is made from
    2  upload its files     nobody reads them yet
    3  put OUTPUT           by CAS from the version that was read: one of two workers loses here
    4  move the cursor      to ``upto``, never back: what lies before may be collected
    5  delete               what neither this version nor its ``former`` names

A crash leaves files that nothing names (``tidy_outputs``), or a cursor that is behind (``look``).
``docs/design/008-pipeline.md`` has the whole protocol.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from stratalog.errors import Conflict, Corrupt, Exists, NotFound, StratalogError, Trimmed, Unknown
from stratalog.herd import COMPACTION, check_name, log_store
from stratalog.objectlog.holds import Cursor, CursorStore
from stratalog.objectlog.stored import FORMAT, Manifest, load_manifest
from stratalog.objectlog.tree import delete_surely
from stratalog.pipeline.jobs import check_alive
from stratalog.pipeline.outputs.output import (
    OUTPUT,
    Output,
    OutputFile,
    decode_output,
    folder_of,
    is_file_name,
)
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import (
    Document,
    Patience,
    PatientStore,
    PrefixedStore,
    Store,
    StoreLike,
    Version,
    open_store,
)

log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
JOB_LABEL = "job "
"""How the writer of a cursor is called that belongs to a job, before the job's name."""

ATTEMPTS_MAX = 8


@dataclass(frozen=True, slots=True)
class OutputState:
    """How far a job is with a log, as it was read: what the next version is made from."""

    log_id: str
    name: str
    first_offset: int
    limit: int
    """The end of the log."""

    stored: Version[Output] | None
    """OUTPUT, if there is one."""

    cursor: Cursor | None

    @property
    def output(self) -> Output | None:
        return None if self.stored is None else self.stored.value

    @property
    def start(self) -> int:
        """The first record that is not merged yet."""
        if self.output is None or not self.output.is_published:
            return self.first_offset
        return self.output.upto

    @property
    def records(self) -> int:
        """How many records are to be merged."""
        return self.limit - self.start

    @property
    def is_behind(self) -> bool:
        """Whether the cursor has not been moved to where the output is."""
        if self.output is None or not self.output.is_published:
            return False
        return self.cursor is None or self.cursor.offset < self.output.upto


class Outputs:
    def __init__(
        self,
        root: Store,
        job: str,
        *,
        cursor: str = COMPACTION,
        merge: str | None = None,
        runtime: Runtime = DEFAULT_RUNTIME,
    ) -> None:
        self._raw = root
        self._root = PatientStore(root, runtime, TIMEOUT_S)
        self._job = check_name(job, "job")
        self._cursor = cursor
        self._label = f"{JOB_LABEL}{job}"
        self._merge = merge
        self._runtime = runtime

    async def look(self, log_id: str, name: str | None = None) -> tuple[OutputState, Manifest]:
        """Where a log and its output stand, and the manifest that tells.

        ``Trimmed`` if records were collected before they were merged; ``Conflict`` if something
        else moves the cursor, or another job did. The cursor is read first and the manifest last,
        because a worker publishes before it moves the cursor, and only what it has found in a
        manifest.
        """
        cursor = await self._load_cursor(log_id)
        stored = await self._document(log_id).read()
        output = None if stored is None else stored.value
        manifest = await self._load_manifest(log_id)
        check_alive(manifest, log_id)
        if cursor is not None:
            self._check_owner(cursor)
        if output is not None and output.is_published:
            self._check(output, manifest, cursor)
        label = name or manifest.name or log_id
        first, tail = manifest.first_offset, manifest.tail.offset
        return OutputState(log_id, label, first, tail, stored, cursor), manifest

    async def publish(
        self, state: OutputState, files: Sequence[OutputFile], schema_json: str
    ) -> Output:
        """Let these files, which are uploaded, be the output of all records up to the end.

        ``Conflict`` if another worker or a tidying came first; ``Unknown`` if that is not known.
        """
        before = state.output
        output = Output(
            log=state.name,
            log_id=state.log_id,
            upto=state.limit,
            version=1 if before is None else before.version + 1,
            schema=msgspec.json.decode(schema_json, type=dict[str, msgspec.Raw]),
            files=tuple(files),
            former=() if before is None else before.files,
            format=FORMAT,
            write_id=self._runtime.new_id(),
            merge=self._merge,
            unknown=None if before is None else before.unknown,
        )
        fresh = frozenset(file.path for file in files)

        def has_them(found: Output) -> bool:
            """Only this version brings its files, so one that names them came after it."""
            return bool(fresh) and fresh <= found.names

        document = self._document(state.log_id)
        await document.put(state.stored, output, is_ours=has_them)
        await self.advance(state, output)
        if before is not None:
            await self._forget(before, output)
        return output

    async def advance(self, state: OutputState, output: Output) -> None:
        """See to it that the cursor is at or beyond what a published output holds."""
        cursors, cursor = self._cursors(state.log_id), state.cursor
        failure: StratalogError | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                if cursor is None:
                    await cursors.create(self._cursor, output.upto)
                elif cursor.offset < output.upto:
                    await cursor.move(output.upto)
                return
            except (Conflict, Exists, Unknown) as error:
                failure = error
            cursor = await self._load_cursor(state.log_id)
        assert failure is not None
        raise failure

    async def find(self, log_id: str) -> Output | None:
        """The output as it is now, if one was published."""
        found = await self._document(log_id).read()
        return None if found is None or not found.value.is_published else found.value

    async def load(self, log_id: str) -> Output:
        """The same. ``NotFound`` if none was published."""
        output = await self.find(log_id)
        if output is None:
            raise NotFound(
                f"the job {self._job!r} has no output of the log {log_id}",
                path=self._path(log_id),
                hint="Materialize it first.",
            )
        return output

    async def tidy(self, log_id: str) -> tuple[str, ...]:
        """Delete the files that nothing names and nobody can publish any more; gives their names.

        What is deleted was listed before OUTPUT was changed by CAS. A worker reads OUTPUT before it
        uploads. So a worker that has uploaded these files and not published them loses its CAS from
        now on, however long it sleeps.
        """
        document = self._document(log_id)
        rows = self._folder(log_id).list()
        listed = [row.path async for row in rows if is_file_name(row.path)]
        for _ in range(ATTEMPTS_MAX):
            found = await document.read()
            unnamed = [name for name in listed if found is None or name not in found.value.names]
            if not unnamed:
                return ()
            output = await self._empty_output(log_id) if found is None else found.value
            try:
                await document.put(found, output)
            except (Conflict, Unknown):
                continue
            await self._delete(log_id, unnamed)
            return tuple(unnamed)
        raise Conflict("the output changes faster than it can be tidied", path=self._path(log_id))

    # Reading

    async def _load_cursor(self, log_id: str) -> Cursor | None:
        try:
            return await self._cursors(log_id).load(self._cursor)
        except NotFound:
            return None

    async def _load_manifest(self, log_id: str) -> Manifest:
        return (await load_manifest(log_store(self._root, log_id)))[0]

    def _check_owner(self, cursor: Cursor) -> None:
        """Refuse the cursor of another job: this one would release what that has not merged."""
        owner = cursor.writer
        if owner.startswith(JOB_LABEL) and owner != self._label:
            raise Conflict(
                f"the cursor {self._cursor!r} belongs to the {owner}, not to the {self._label}",
                hint="Give each job a cursor of its own.",
                expected=self._label,
                actual=owner,
            )

    def _check(self, output: Output, manifest: Manifest, cursor: Cursor | None) -> None:
        """Refuse to go on where records are missing, or are about to be."""
        first, tail = manifest.first_offset, manifest.tail.offset
        if first > output.upto:
            raise Trimmed(
                f"the log starts at {first}, and the job {self._job!r} has merged only up to "
                f"{output.upto}: the records between were collected before they were merged",
                first_offset=first,
                hint="Start over with another job name, and keep the cursor of the job.",
            )
        if output.upto > tail:
            raise Corrupt(
                f"the log ends at {tail}, and the job {self._job!r} has merged up to {output.upto}",
                path=self._path(output.log_id),
                expected=output.upto,
                actual=tail,
            )
        if cursor is not None and cursor.offset > output.upto:
            raise Conflict(
                f"the cursor {self._cursor!r} is at {cursor.offset}, but the job {self._job!r} has "
                f"merged only up to {output.upto}: something else moves it",
                hint="Give each job a cursor of its own, or move this one back.",
                expected=output.upto,
                actual=cursor.offset,
            )

    # Changing

    async def _empty_output(self, log_id: str) -> Output:
        """An output for which nothing was merged."""
        manifest = await self._load_manifest(log_id)
        return Output(
            log=manifest.name or log_id,
            log_id=log_id,
            upto=manifest.first_offset,
            version=0,
            files=(),
            former=(),
            format=FORMAT,
            write_id=self._runtime.new_id(),
        )

    async def _forget(self, before: Output, output: Output) -> None:
        """Delete what can be read no more. What is left behind is for the next tidying."""
        try:
            await self._delete(output.log_id, sorted(before.names - output.names))
        except StratalogError as error:
            log.info("files of a former output were not deleted: %s", error)

    async def _delete(self, log_id: str, names: Sequence[str]) -> None:
        await delete_surely(self._folder(log_id), names, Patience(self._runtime, TIMEOUT_S))

    # Places

    def _document(self, log_id: str) -> Document[Output]:
        return Document(
            self._root,
            self._path(log_id),
            decode_output,
            label=f"output of the job {self._job!r} for the log {log_id}",
            runtime=self._runtime,
            timeout_s=TIMEOUT_S,
            hint_if_changed="Another worker was faster, or the output was tidied. Run the job "
            "again.",
        )

    def _path(self, log_id: str) -> str:
        return f"{folder_of(self._job, log_id)}/{OUTPUT}"

    def _folder(self, log_id: str) -> Store:
        return PrefixedStore(self._root, folder_of(self._job, log_id))

    def _cursors(self, log_id: str) -> CursorStore:
        place = log_store(self._raw, log_id)
        return CursorStore(place, writer=self._label, runtime=self._runtime)


async def load_output(
    root: StoreLike, job: str, log_id: str, *, runtime: Runtime = DEFAULT_RUNTIME
) -> Output:
    """What a job has published of a log. ``NotFound`` if nothing."""
    return await Outputs(open_store(root), job, runtime=runtime).load(log_id)


async def tidy_outputs(
    root: StoreLike, job: str, log_id: str, *, runtime: Runtime = DEFAULT_RUNTIME
) -> tuple[str, ...]:
    """Delete the files that crashed runs of a job have left for a log; gives their names.

    A run that is under way meanwhile may lose its work on this log, and nothing else.
    """
    return await Outputs(open_store(root), job, runtime=runtime).tidy(log_id)
