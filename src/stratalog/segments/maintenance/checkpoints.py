"""Taking a checkpoint, and installing one that came from another replica.

The state is written to a file and synced. Then one record of the journal names the file and drops
the segments in which nothing lives any more: minor compaction. Before the record the old checkpoint
counts, after it the new one.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from stratalog.errors import Conflict, Corrupt, Invalid, NotFound
from stratalog.indexset import IndexSet
from stratalog.segments.context import DiskContext
from stratalog.segments.format import (
    Checkpoint,
    Checkpointed,
    CheckpointFile,
    Edit,
    Layout,
    checkpoint_front,
    checkpoint_path,
    crc32,
    live_path,
    read_state,
)
from stratalog.segments.io import Buffer, File, FileSystem, HeldFile, Tasks, write_file
from stratalog.segments.maintenance.choose_segments import dead_segments
from stratalog.segments.maintenance.major_compaction import Compactor
from stratalog.segments.read import DurableLog
from stratalog.segments.write_ahead import Journal, Wal


class HeldState:
    """The state of a checkpoint, in an open file."""

    def __init__(self, files: FileSystem, path: str, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._path = path
        self._file = HeldFile(lambda: files.open(path), "reading a checkpoint", path)

    async def open(self) -> None:
        """``NotFound`` if a newer checkpoint has replaced it and the file is gone."""
        await self._file.run(lambda _: None)

    async def part(self, start: int, size: int) -> bytes:
        """Some bytes of the state, not verified."""
        at = self.checkpoint.state_at + start
        return await self._file.run(lambda file: file.read_at(at, size))

    async def whole(self) -> bytes:
        """The whole state, verified."""
        return await self._file.run(lambda file: read_state(file, self.checkpoint, self._path))

    def close(self) -> None:
        self._file.close()


@dataclass(eq=False)
class Checkpoints:
    """Writes, installs and reads checkpoints."""

    context: DiskContext
    journal: Journal
    wal: Wal
    compactor: Compactor
    tasks: Tasks = field(default_factory=Tasks, init=False)
    """The checkpoints that are being taken."""

    async def take(
        self,
        partition: DurableLog,
        index: int,
        state: Buffer,
        live: IndexSet,
        keeping: AbstractContextManager[None],
        must_end: Callable[[], Awaitable[None]],
    ) -> None:
        """A checkpoint of the partition's own log. A cancelled caller does not stop it.

        While ``keeping`` is entered, nothing at or below ``index`` may be cut off. ``must_end``
        raises ``Invalid`` if no entry ends there.
        """

        async def take() -> None:
            if index > partition.last or index < 1:
                raise Invalid(
                    f"a checkpoint at {index} of a log that ends at {partition.last}",
                    hint="A checkpoint contains what is durable.",
                    expected=partition.last,
                    actual=index,
                )
            lineage = partition.lineage.up_to(index)
            made = Checkpoint(index, live, lineage, len(state), crc32(state))
            with keeping:
                self._check(partition, made)
                await must_end()
                incoming = IncomingCheckpoint(self, partition, made)
                try:
                    await incoming.write(state)
                    await incoming.commit()
                finally:
                    incoming.discard()

        await self.tasks.run(take())

    async def commit(self, partition: DurableLog, made: Checkpoint, path: str, size: int) -> bool:
        """Make a durable checkpoint the current one. False if the partition was removed."""
        number = partition.number

        def record(layout: Layout) -> Edit | None:
            current = layout.find(number)
            if current is None:
                return None
            self._check(partition, made)
            dead = dead_segments(current.files, made.live, made.index)
            return Checkpointed(
                number, CheckpointFile(path, size, made.index), tuple(file.path for file in dead)
            )

        def applied(_: Edit) -> None:
            partition.has_checkpoint(made)
            self.context.meters.minor += 1
            self.compactor.after_minor(partition)

        creates = [path, live_path(path)]
        return await self.journal.commit(record, creates=creates, then=applied) is not None

    async def hold(self, partition: DurableLog) -> HeldState | None:
        """The current checkpoint with its state. It stays readable when a newer one replaces it."""
        while True:
            checkpoint = partition.checkpoint_info
            named = self._current(partition)
            if checkpoint is None or named is None:
                return None
            held = HeldState(self.context.files, named.path, checkpoint)
            try:
                await held.open()
            except BaseException as error:
                held.close()
                if not isinstance(error, NotFound) or self._current(partition) == named:
                    raise
            else:
                return held

    def _current(self, partition: DurableLog) -> CheckpointFile | None:
        layout = self.journal.layout.find(partition.number)
        if layout is None:
            raise NotFound(f"partition {partition.name!r} was removed")
        return layout.checkpoint

    def _check(self, partition: DurableLog, made: Checkpoint) -> None:
        """A live entry lived at the checkpoint before, or lies above it."""
        if made.index < partition.checkpoint_index:
            raise Conflict(
                f"{partition.name!r} has a later checkpoint, at {partition.checkpoint_index}",
                hint="A newer one was taken meanwhile. Nothing is lost: go on from it.",
                expected=partition.checkpoint_index,
                actual=made.index,
            )
        if made.live.last is not None and made.live.last > made.index:
            raise Invalid(
                f"{made.live.last} is above the checkpoint at {made.index}",
                hint="Everything above a checkpoint is kept anyway; name what lives below it.",
            )
        was_alive = partition.live | IndexSet(range(partition.checkpoint_index + 1, made.index + 1))
        missing = made.live - (partition.indexes & was_alive)
        if missing:
            raise Invalid(
                f"a checkpoint of {partition.name!r} says that {missing!r} lives, "
                "which is not there any more",
                hint="Name only entries that are durable and that the checkpoint before kept.",
                actual=missing,
            )


class IncomingCheckpoint:
    """A checkpoint that is being written. No record names its file until it is complete.

    Call ``discard`` in any case. After a crash, opening removes the file.
    """

    def __init__(self, checkpoints: Checkpoints, partition: DurableLog, made: Checkpoint) -> None:
        self._checkpoints = checkpoints
        self._partition = partition
        self._context = context = checkpoints.context
        nonce, number = context.new_nonce(), partition.number
        self._path = path = checkpoint_path(number, made.index, nonce)
        self._front = checkpoint_front(context.disk, bytes.fromhex(nonce), number, made)
        self._made = replace(made, state_at=len(self._front))
        self._size = 0
        self._crc = 0
        self._file = HeldFile(lambda: context.files.create(path), "writing a checkpoint", path)
        self._is_handed_on = False

    async def write(self, part: Buffer) -> None:
        """The next bytes of the state."""
        data = [part] if self._size else [self._front, part]
        at = self._size
        self._size += sum(map(len, data))
        self._crc = crc32(part, self._crc)
        await self._file.run(lambda file: file.write_at(at, *data))

    async def commit(self) -> None:
        """Make it current. ``Corrupt`` if the state is not the announced one."""
        made, path = self._made, self._path
        if self._size != made.state_at + made.state_bytes or self._crc != made.state_crc:
            raise Corrupt(
                f"a state of {self._size - made.state_at} bytes is not the one that was announced",
                hint="It was changed on its way. Nothing of it was kept: send it again.",
                path=path,
                expected=made.state_bytes,
                actual=self._size - made.state_at,
            )
        files = self._context.files

        def sync(file: File) -> None:
            file.sync()
            write_file(files, live_path(path), [made.live.to_bytes()])
            files.sync_folder("ckpt")

        await self._file.run(sync)
        # A checkpoint must not rest on entries that a batch in doubt would overwrite.
        await self._checkpoints.wal.settle()
        self._is_handed_on = True  # from here on the journal decides whether the files stay
        if not await self._checkpoints.commit(self._partition, made, path, self._size):
            self._context.remove_files([path, live_path(path)])
            raise NotFound(f"partition {self._partition.name!r} was removed meanwhile")

    def discard(self) -> None:
        """Close the file, and remove it unless it was committed."""
        paths = [] if self._is_handed_on else [self._path, live_path(self._path)]
        self._file.close(lambda: self._context.remove_files(paths))
