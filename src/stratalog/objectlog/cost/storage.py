"""What a log has stored, by class: one listing, compared with the tree on the way.

Both come in the same order (``unlinked_objects``), so a log of any length is measured in the memory
of one bucket of fragments, the paths of its snapshots, and a limited number of unlinked objects.
Objects that a fork shares belong to the log that it was forked from, and are counted there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

from stratalog.objectlog.collection import Amount, Survey
from stratalog.objectlog.holds import PinStore
from stratalog.objectlog.stored import Kind, Manifest, load_manifest, own
from stratalog.objectlog.tree import Tree, on_newest_tree
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Listed, PatientStore, StoreLike, open_store

UNREFERENCED_AT_ONCE = 100_000
TIMEOUT_S = 60.0

StoredClass = Literal[
    "fragments",
    "snapshots",
    "manifest",
    "cursors",
    "pins",
    "stages",
    "indexes",
    "plan",
    "certificates",
    "policy",
    "unreferenced",
    "other",
]
CLASSES: tuple[StoredClass, ...] = get_args(StoredClass)

_CLASS_OF: dict[Kind, StoredClass] = {
    Kind.FRAGMENT: "fragments",
    Kind.SNAPSHOT: "snapshots",
    Kind.MANIFEST: "manifest",
    Kind.CURSOR: "cursors",
    Kind.PIN: "pins",
    Kind.STAGE: "stages",
    Kind.INDEX: "indexes",
    Kind.PLAN: "plan",
    Kind.CERTIFICATE: "certificates",
    Kind.POLICY: "policy",
    Kind.TRIAL: "other",
}

OnProgress = Callable[[int], None]
"""Called with how many objects were listed."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The objects of a log and their bytes, by class.

    ``unreferenced`` is what a sweep would take: left by writers that crashed or were overtaken,
    or just uploaded and not linked yet. ``other`` is not the log's, or of a trial of the store.
    """

    url: str
    amounts: dict[StoredClass, Amount] = field(default_factory=dict)

    @property
    def total(self) -> Amount:
        return sum(self.amounts.values(), Amount())


async def measure_storage(
    url: StoreLike,
    *,
    on_progress: OnProgress | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Stored:
    """List a log and add up its bytes by class. ``NotFound`` if there is none."""
    store = _WatchedListing(open_store(url), runtime, TIMEOUT_S)

    async def measure(manifest: Manifest) -> Stored:
        store.begin(on_progress)
        await _take_out_unreferenced(store, manifest, runtime)
        return Stored(store.url, store.amounts)

    return await on_newest_tree(store, measure)


async def _take_out_unreferenced(
    store: _WatchedListing, manifest: Manifest, runtime: Runtime
) -> None:
    """List everything; what nothing links moves to a class of its own."""
    tree = Tree(store)
    after: str | None = ""
    while after is not None:
        survey = Survey(store, tree, UNREFERENCED_AT_ONCE)
        await survey.take(manifest, after)
        if survey.candidates:
            newest, _ = await load_manifest(store)
            await survey.strike_out_linked(newest)
            for pin in await PinStore(store, runtime=runtime).list_all():
                await survey.strike_out_pinned(pin)
        for path, size in survey.candidates.items():
            store.move(Listed(path, size), "unreferenced")
        after = survey.next_after


class _WatchedListing(PatientStore):
    """The same store, which adds up what is listed."""

    def begin(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._rows = 0
        self.amounts: dict[StoredClass, Amount] = {name: Amount() for name in CLASSES}

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        async for row in super().list(prefix, after):
            if not prefix:
                self.amounts[_class_of(row)] += Amount(1, row.size)
                self._rows += 1
                if self._on_progress is not None:
                    self._on_progress(self._rows)
            yield row

    def move(self, row: Listed, to: StoredClass) -> None:
        """Count an object in another class than that of its name."""
        self.amounts[_class_of(row)] += Amount(-1, -row.size)
        self.amounts[to] += Amount(1, row.size)


def _class_of(row: Listed) -> StoredClass:
    found = own(row.path)
    return "other" if found is None else _CLASS_OF[found.kind]
