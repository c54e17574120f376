"""What is checked of files that Spark reads by itself, without reading them.

Spark takes the manifest's word for where rows are and how large a file is, and believes what a
file says of itself. So before it is given the files, the driver compares the size of each with its
entry, and refuses two entries of a log that lead to one file, whose rows would be doubled. Few
objects are asked for one by one, and many are listed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from stratalog.errors import Corrupt, NotFound
from stratalog.objectlog.stored import Fragment
from stratalog.objectlog.tree import key_of
from stratalog.ordered import gather_bounded
from stratalog.pipeline.read.fetch import READ_TIMEOUT_S, check_size, explain_missing
from stratalog.pipeline.read.splits import Part
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import PatientStore, Store, open_store

REQUESTS_AT_ONCE = 32
HEADS_MAX = 64
"""So many objects of a folder are asked for one by one. A listing has a thousand in a request."""

_BUCKET_PARTS = 2
"""Parts of a path before the folder of a fragment: ``log/Bucket=…/``."""

Request = Callable[[], Awaitable[None]]


async def check_files(parts: Sequence[Part]) -> None:
    """``Corrupt`` for an object that is missing, has another size, or stands for two entries."""
    for part in parts:
        _check_paths(part)
    stores: dict[str, Store] = {}
    requests = [request for part in parts for request in _requests(part, stores)]
    await gather_bounded(requests, lambda request: request(), REQUESTS_AT_ONCE)


def _check_paths(part: Part) -> None:
    seen: dict[str, Fragment] = {}
    for fragment in part.fragments:
        twin = seen.setdefault(key_of(fragment), fragment)
        if twin is not fragment:
            raise Corrupt(
                f"two entries of a log lead to {fragment.path}, for the records from "
                f"{twin.start.offset} and from {fragment.start.offset} on",
                path=fragment.path,
            )


def _requests(part: Part, stores: dict[str, Store]) -> Iterator[Request]:
    """What the store is asked, in folders of objects that lie together."""
    folders: defaultdict[tuple[str, str], list[Fragment]] = defaultdict(list)
    for fragment in part.fragments:
        names = fragment.path.split("/")[:-1]
        folder = "".join(f"{name}/" for name in names[:_BUCKET_PARTS])
        folders[fragment.base or part.url, folder].append(fragment)
    for (place, folder), fragments in folders.items():
        if place not in stores:
            stores[place] = PatientStore(open_store(place), DEFAULT_RUNTIME, READ_TIMEOUT_S)
        look = _Look(stores[place], part.url)
        if len(fragments) > HEADS_MAX:
            yield partial(look.list, folder, fragments)
        else:
            yield from (partial(look.head, fragment) for fragment in fragments)


@dataclass(frozen=True, slots=True)
class _Look:
    """How the objects at one place are compared with the entries of a log."""

    store: Store
    log_url: str

    async def head(self, fragment: Fragment) -> None:
        """Ask for one object."""
        try:
            found = await self.store.head(fragment.path)
        except NotFound:
            await self._explain(fragment)
        else:
            check_size(fragment, found.size)

    async def list(self, folder: str, fragments: Iterable[Fragment]) -> None:
        """List a folder that holds all of these."""
        sizes = {row.path: row.size async for row in self.store.list(folder)}
        for fragment in fragments:
            if fragment.path not in sizes:
                await self._explain(fragment)
            check_size(fragment, sizes[fragment.path])

    async def _explain(self, fragment: Fragment) -> None:
        log = PatientStore(open_store(self.log_url), DEFAULT_RUNTIME, READ_TIMEOUT_S)
        await explain_missing(log, fragment)
