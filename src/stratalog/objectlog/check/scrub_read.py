"""Reading what may be damaged: every answer of the store is a result; none ends the scrub.

A batch of fragments is read in parallel and examined in log order, by this process or by one that
was started for it (``scrub_worker``). What comes back is small: damages, counts, and the entries
whose object the store did not give, for the caller to look at again.

Batches under way are bounded by their number and by their bytes. One that takes long does not stop
those behind it, but their results wait for their turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from stratalog.errors import Denied, Invalid, NotFound, StratalogError, Unavailable
from stratalog.objectlog.check.damage import Damage
from stratalog.objectlog.check.fragment_check import examine_fragment, examine_size
from stratalog.objectlog.options import KIB
from stratalog.objectlog.stored import Entry, Fragment
from stratalog.objectlog.tree import Tree
from stratalog.ordered import OrderedTasks
from stratalog.runtime import Runtime
from stratalog.store import Store, check_path, get_then

T = TypeVar("T")

EXAMINE_INLINE_BYTES_MAX = 32 * KIB
WAITING_MAX = 1024

NOT_READ = (NotFound, Denied, Unavailable, Invalid)
"""What a store answers in place of an object."""


@dataclass(slots=True)
class Examined:
    """What became of a batch: damages, bytes read, and which of its entries were not read."""

    damages: list[Damage] = field(default_factory=list)
    num_bytes: int = 0
    unread: list[tuple[int, StratalogError]] = field(default_factory=list)


class Examiner(Protocol):
    """Reads and examines batches of fragments, several at a time."""

    batch_fragments: int
    """How many fragments a batch should have at most."""

    batches: int
    """How many batches should be under way."""

    async def examine(self, batch: Sequence[Fragment]) -> Examined: ...

    async def close(self) -> None: ...


def tree_of(store: Store) -> Tree:
    """A tree without a cache: a scrub reads everything once."""
    return Tree(store)


async def read_object(tree: Tree, entry: Entry) -> bytes | StratalogError:
    """The bytes of the object behind an entry, or why there are none."""
    try:
        return (await tree.store_of(entry).get(check_path(entry.path))).data
    except NOT_READ as error:
        return error


async def read_size(tree: Tree, entry: Entry) -> int | StratalogError:
    """The size of the object behind an entry, or why there is none."""
    try:
        return (await tree.store_of(entry).head(check_path(entry.path))).size
    except NOT_READ as error:
        return error


def examine_read(entry: Fragment, found: bytes | int) -> tuple[Damage, ...]:
    """All that is wrong with what was read: the bytes, or only their number."""
    if isinstance(found, int):
        return tuple(examine_size(found, entry))
    return tuple(examine_fragment(found, entry))


class LocalExaminer:
    """Examines in this process, each fragment on a thread of its own if it is large."""

    def __init__(self, store: Store, bodies: bool, fragments_max: int, runtime: Runtime) -> None:
        self._tree = tree_of(store)
        self._bodies = bodies
        self._runtime = runtime
        self.batch_fragments = 1
        self.batches = fragments_max

    async def examine(self, batch: Sequence[Fragment]) -> Examined:
        found = Examined()
        for index, entry in enumerate(batch):
            try:
                damages, size = await self._examine(entry)
            except NOT_READ as error:
                found.unread.append((index, error))
            else:
                found.damages += damages
                found.num_bytes += size
        return found

    async def _examine(self, entry: Fragment) -> tuple[tuple[Damage, ...], int]:
        """What is wrong with a fragment, and how many bytes of it were read."""
        if not self._bodies:
            size = (await self._tree.store_of(entry).head(check_path(entry.path))).size
            return examine_read(entry, size), size
        return await self._read(entry, lambda data: (examine_read(entry, data), len(data)))

    async def _read(self, entry: Fragment, work: Callable[[bytes], T]) -> T:
        """What ``work`` makes of the bytes of a fragment."""
        store, path = self._tree.store_of(entry), check_path(entry.path)
        if entry.num_bytes > EXAMINE_INLINE_BYTES_MAX:
            return await get_then(store, path, work, self._runtime)
        data = (await store.get(path)).data
        if len(data) <= EXAMINE_INLINE_BYTES_MAX:
            return work(data)
        return await self._runtime.compute(lambda: work(data))  # more than was promised

    async def close(self) -> None:
        """Nothing is kept open."""


@dataclass(frozen=True, slots=True)
class Done:
    """A batch that was examined, and how many nodes the walk had read at its end."""

    batch: Sequence[Fragment]
    snapshots: int
    examined: Examined


class BatchLine:
    def __init__(self, examiner: Examiner, bytes_max: int) -> None:
        self._examiner = examiner
        self._batch_bytes_max = bytes_max // examiner.batches
        self._open: list[Fragment] = []
        self._open_size = 0
        self._open_snapshots = 0
        self._begun: OrderedTasks[Done] = OrderedTasks(examiner.batches, bytes_max)

    async def add(self, fragment: Fragment, snapshots: int) -> None:
        """Put a fragment at the end. Waits while there is too much under way."""
        size = self._open_size + fragment.num_bytes
        full = len(self._open) >= self._examiner.batch_fragments or size > self._batch_bytes_max
        if self._open and full:
            await self._begin()
        self._open.append(fragment)
        self._open_size += fragment.num_bytes
        self._open_snapshots = snapshots

    async def take(self) -> Done | None:
        """The first batch, if it is done. Raises what its examiner raised."""
        return await self._begun.take() if self._begun.is_ready else None

    async def finish(self) -> Done | None:
        """The first batch when it is done; None when all were taken."""
        if self._open:
            await self._begin()
        await self._begun.wait()
        return await self.take()

    async def close(self) -> None:
        await self._begun.close()

    async def _begin(self) -> None:
        await self._begun.wait_for_room(self._open_size)
        if len(self._begun) >= WAITING_MAX:
            await self._begun.wait()
        self._begun.start(self._examine(self._open, self._open_snapshots), self._open_size)
        self._open, self._open_size = [], 0

    async def _examine(self, batch: Sequence[Fragment], snapshots: int) -> Done:
        return Done(batch, snapshots, await self._examiner.examine(batch))
