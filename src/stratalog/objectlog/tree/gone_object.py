"""The object is gone: reload the manifest and go on.

Objects never change, but a collection, a compaction or a sweep may delete one while somebody walks
the tree of an older manifest. A missing object therefore means one of two things:

    replaced    a newer manifest does without it: begin again from that one
    lost        the newest manifest still leads to it: ``Corrupt``

Three signs tell that it is lost, and each is enough:

    1  The manifest is still the version that was walked. Nothing is deleted before a manifest
       without it was put.
    2  The same work has missed the same object before. The manifest that was loaded then was
       younger than the deletion, so no tree since then can need the object. Without this rule a
       log that takes appends, and so has a new version each time, would be walked for ever.
    3  The caller knows of its own that the newest manifest leads there.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from stratalog.errors import Conflict, Corrupt, NotFound
from stratalog.objectlog.stored import Manifest, load_manifest
from stratalog.store import Store

T = TypeVar("T")

Load = Callable[[Store], Awaitable[tuple[Manifest, str]]]
"""Loads the newest manifest with its etag, or refuses it."""

ATTEMPTS_MAX = 5


def missing(path: str | None) -> Corrupt:
    """The alarm about an object that the newest manifest links and the store does not have."""
    path = path or "an object"
    return Corrupt(f"{path} is missing although the log links it", path=path)


class Reloads:
    """What one piece of work on a tree has missed so far."""

    def __init__(self, store: Store, load: Load = load_manifest) -> None:
        self._store = store
        self._load = load
        self._missed: set[str | None] = set()

    async def after(
        self,
        gone: NotFound,
        etag: str | None,
        leads_there: Callable[[Manifest], bool] | None = None,
    ) -> Manifest:
        """The newest manifest, which does without what is gone; ``Corrupt`` if it does not.

        ``etag`` is the version of the manifest that was walked. ``leads_there`` may recognise a
        newer one that leads to the object all the same, or raise what explains it better.
        """
        manifest, newest = await self._load(self._store)
        is_lost = leads_there is not None and leads_there(manifest)
        if is_lost or newest == etag or gone.path in self._missed:
            raise missing(gone.path) from None
        self._missed.add(gone.path)
        return manifest


async def on_newest_tree(
    store: Store, work: Callable[[Manifest], Awaitable[T]], *, load: Load = load_manifest
) -> T:
    """Let ``work`` walk the tree of the newest manifest, again if that was replaced meanwhile.

    ``work`` may be called several times. ``load`` decides which manifests may be walked at all.
    ``Corrupt`` if the log has lost an object; ``Conflict`` if its tree changes again and again.
    """
    reloads = Reloads(store, load)
    for _ in range(ATTEMPTS_MAX):
        manifest, etag = await load(store)
        try:
            return await work(manifest)
        except NotFound as gone:
            await reloads.after(gone, etag)
    raise Conflict(
        "the tree changes faster than it can be walked",
        hint="Try again when the collection has ended.",
    )
