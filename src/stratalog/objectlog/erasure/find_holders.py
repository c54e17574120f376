"""Which records a log has, and what else holds them: pins, forks, the log that it came from.

What is found makes a certificate incomplete: it cannot be said that erased records are gone.
A record is the same wherever its offset is found, so the fragments that a pin leads to show which
records it holds. Only a fragment of which records are missing must be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import compress
from typing import Literal

import msgspec

from stratalog.errors import NotFound
from stratalog.indexset import EMPTY, IndexSet
from stratalog.objectlog.holds import Pin, PinStore
from stratalog.objectlog.options import MIB
from stratalog.objectlog.stored import Entry, Fragment, Manifest, Natural, check_bytes
from stratalog.objectlog.tree import Tree, on_newest_tree, survivors_of
from stratalog.ordered import gather_bounded, in_order
from stratalog.runtime import Runtime
from stratalog.store import Store, redact, sibling

READS_AT_ONCE = 16
READ_BYTES_MAX = 64 * MIB
HEADS_AT_ONCE = 32
FORK_PIN = "fork_"

Versions = Literal["none", "kept", "unknown"]
"""Whether the store keeps what was deleted as older versions."""


class Holder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pin, fork, log or job that still leads to a record."""

    kind: Literal["pin", "fork", "source", "stage"]
    name: str
    records: Natural = 0
    """How many of them; 0 if that is not known."""

    note: str = ""
    expires_us: Natural | None = None

    def __str__(self) -> str:
        what = {
            "pin": f"the pin {self.name}",
            "fork": f"a fork, by the pin {self.name}",
            "source": f"the log that this one was forked from, {self.name}",
            "stage": f"work that is under way, or was killed, with the stage {self.name}",
        }[self.kind]
        return f"{what} ({self.note})" if self.note else what


@dataclass(frozen=True, slots=True)
class Present:
    """Which records a log has, and where."""

    manifest: Manifest
    fragments: tuple[tuple[Fragment, IndexSet], ...]

    @property
    def offsets(self) -> IndexSet:
        return IndexSet.union(found for _, found in self.fragments)

    @property
    def sources(self) -> tuple[Holder, ...]:
        """The logs that this one was forked from, and that own some of these fragments."""
        records: Counter[str] = Counter()
        for fragment, found in self.fragments:
            if fragment.base is not None:
                records[fragment.base] += len(found)
        return tuple(
            Holder(kind="source", name=redact(url), records=count) for url, count in records.items()
        )


@dataclass(frozen=True, slots=True)
class Pinned:
    """Which pins lead to some records, and to which objects that have them."""

    holders: tuple[Holder, ...]
    paths: frozenset[str]


async def present(tree: Tree, store: Store, wanted: IndexSet) -> Present:
    """Which of these records the log has."""

    async def look(manifest: Manifest) -> Present:
        async with aclosing(_found(tree, manifest.entries, wanted)) as walk:
            return Present(manifest, tuple([each async for each in walk]))

    return await on_newest_tree(store, look)


async def pins_that_hold(
    tree: Tree, store: Store, wanted: IndexSet, runtime: Runtime, *, also_released: bool = False
) -> Pinned:
    """The pins that lead to one of these records. Expired pins are released.

    Released pins count with ``also_released``: what they held stays until they are cleared.
    """
    held, released = await PinStore(store, runtime=runtime).release_expired()
    holders: list[Holder] = []
    paths: set[str] = set()
    for pin in (*held, *(released if also_released else ())):
        below = await _below(tree, pin, wanted)
        paths.update(fragment.path for fragment, _ in below)
        if below:
            holders.append(
                Holder(
                    kind="fork" if pin.name.startswith(FORK_PIN) else "pin",
                    name=pin.name,
                    records=sum(len(found) for _, found in below),
                    note=redact(pin.note),
                    expires_us=pin.expires_us,
                )
            )
    return Pinned(tuple(holders), frozenset(paths))


async def stored_with(
    tree: Tree, store: Store, wanted: IndexSet, fragments: Sequence[Fragment]
) -> tuple[str, ...]:
    """Those of these fragments that are stored and have one of these records."""
    there = await stored_of(store, list({fragment.path: None for fragment in fragments}))
    by_path = {fragment.path: fragment for fragment in fragments}
    return tuple([path for path in there if await _records_in(by_path[path], tree, wanted, True)])


async def stored_of(store: Store, paths: Sequence[str]) -> tuple[str, ...]:
    async def is_there(path: str) -> bool:
        try:
            await store.head(path)
        except NotFound:
            return False
        return True

    there = await gather_bounded(paths, is_there, HEADS_AT_ONCE)
    return tuple(compress(paths, there))


async def logs_with(store: Store, foreign: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The logs that still have one of these objects of theirs."""
    found: list[str] = []
    for url in dict.fromkeys(base for base, _ in foreign):
        paths = [path for base, path in foreign if base == url]
        if await stored_of(sibling(store, url), paths):
            found.append(redact(url))
    return tuple(found)


async def versions_of(store: Store, path: str) -> Versions:
    """Whether the store keeps versions, judged by an object that was just written."""
    version = (await store.head(path)).version
    if version is None:
        return "none"
    return "unknown" if store.url.startswith("gs://") else "kept"


def reasons_against(
    kept: Sequence[str], owned: Sequence[str], holders: Sequence[Holder], versions: Versions
) -> tuple[str, ...]:
    reasons = [f"still held by {holder}" for holder in holders]
    if kept:
        reasons.append(f"old objects are still there: {kept[0]}" + and_more(len(kept) - 1))
    reasons += [f"the log that this one was forked from still has them: {url}" for url in owned]
    if versions == "kept":
        reasons.append("the bucket keeps older versions of its objects, deleted ones too")
    if versions == "unknown":
        reasons.append("the store does not tell whether it keeps deleted objects")
    return tuple(reasons)


def and_more(count: int) -> str:
    return f", and {count} more" if count > 0 else ""


async def _below(tree: Tree, pin: Pin, wanted: IndexSet) -> list[tuple[Fragment, IndexSet]]:
    """Which of these records a pin holds, and where. It holds whole fragments that are stored."""
    window = pin.window
    entries = filter(window.overlaps, pin.entries)
    async with aclosing(_found(tree, entries, wanted, may_be_lost=True)) as walk:
        return [each async for each in walk if window.overlaps(each[0])]


async def _found(
    tree: Tree, entries: Iterable[Entry], wanted: IndexSet, *, may_be_lost: bool = False
) -> AsyncGenerator[tuple[Fragment, IndexSet], None]:
    """The fragments that have some of these records, and which."""

    def overlaps(entry: Entry) -> bool:
        return wanted.overlaps(range(entry.start.offset, entry.limit.offset))

    async def look(fragment: Fragment) -> tuple[Fragment, IndexSet]:
        return fragment, await _records_in(fragment, tree, wanted, may_be_lost)

    on_missing = (lambda _: None) if may_be_lost else None  # a lost node leads to nothing
    async with aclosing(tree.fragments(entries, overlaps, on_missing)) as walk:
        looked = in_order(
            walk,
            look,
            lambda each: each.num_bytes,
            count_max=READS_AT_ONCE,
            bytes_max=READ_BYTES_MAX,
        )
        async with aclosing(looked) as ahead:
            async for each in ahead:
                if each[1]:
                    yield each


async def _records_in(
    fragment: Fragment, tree: Tree, wanted: IndexSet, may_be_lost: bool
) -> IndexSet:
    """Which of these records a fragment has. The rows are read only if it is sparse."""
    if not fragment.is_sparse:
        return wanted.within(fragment.offsets)
    if not fragment.count:
        return EMPTY
    try:
        data = (await tree.store_of(fragment).get(fragment.path)).data
    except NotFound:
        if may_be_lost:
            return EMPTY
        raise
    check_bytes(data, fragment)
    return wanted & survivors_of(data, fragment, verify=False).offsets
