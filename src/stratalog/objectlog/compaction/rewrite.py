"""Rewriting neighbours: read them, part what lives from what does not, store what lives.

Each row is hashed once. The rows that live and those that do not must add up to the sum in the
entry of their fragment, which verifies the fragment. The sum of what goes is hashed from its rows,
never obtained by subtraction. Groups are independent of each other, so any process can rewrite one
that has the names of an upload guard to upload under.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from stratalog.indexset import IndexSet
from stratalog.objectlog.compaction.relink import Replaced
from stratalog.objectlog.compaction.rewrite_groups import Group
from stratalog.objectlog.holds import UploadGuard
from stratalog.objectlog.options import CompactOptions
from stratalog.objectlog.stored import Fragment, UploadNames, check_bytes, check_sum
from stratalog.objectlog.tree import Survivors, Tree, joined, survivors_of
from stratalog.ordered import gather_bounded
from stratalog.runtime import Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import Patience, Store, get_then, put_once

OnProgress = Callable[[int, int], None]
"""Called with how many fragments were examined and rewritten, and how many there are."""

Rewrite = Callable[
    [Sequence[Group], IndexSet, UploadGuard, OnProgress | None], Awaitable[list[Replaced]]
]
"""Rewrites groups, of which these records live, under a guard. In the order of the groups."""


@dataclass(frozen=True, slots=True)
class _Hashed:
    """Rows, and the sum that was hashed from them."""

    rows: Survivors
    setsum: Setsum


@dataclass(slots=True)
class _Portion:
    """What goes into one fragment, and what of it does not."""

    fragments: list[Fragment] = field(default_factory=list)
    kept: list[Survivors] = field(default_factory=list)
    setsum: Setsum = EMPTY
    discarded: Setsum = EMPTY
    dropped: list[IndexSet] = field(default_factory=list)

    def add(self, live: _Hashed, dead: _Hashed) -> None:
        self.kept.append(live.rows)
        self.setsum += live.setsum
        self.discarded += dead.setsum
        self.dropped.append(dead.rows.offsets)

    def is_full(self, more: Survivors, fragment_bytes: int) -> bool:
        size = sum(each.rows.nbytes for each in self.kept)
        return bool(size and len(more)) and size + more.rows.nbytes > fragment_bytes


@dataclass(frozen=True, slots=True)
class Rewriter:
    """Rewrites groups of one log, some at a time."""

    store: Store
    tree: Tree
    live: IndexSet
    options: CompactOptions
    runtime: Runtime

    async def rewrite(
        self, groups: Sequence[Group], names: UploadNames, on_progress: OnProgress | None = None
    ) -> list[Replaced]:
        done, whole = 0, sum(len(each.fragments) for each in groups)

        async def one(each: Group) -> list[Replaced]:
            nonlocal done
            found = await self._rewritten(each, names)
            done += len(each.fragments)
            if on_progress is not None:
                on_progress(done, whole)
            return found

        rewritten = await gather_bounded(groups, one, self.options.groups_max)
        return [each for found in rewritten for each in found]

    async def _rewritten(self, whole: Group, names: UploadNames) -> list[Replaced]:
        """Read neighbours, hash what goes, and store what lives, unless its object stays.

        Groups were formed by an estimate from the number of records. Where more lives, there will
        be several fragments.
        """
        found: list[Replaced] = []
        portion = _Portion()
        for fragment in whole.fragments:
            if fragment is whole.keeper:
                portion.fragments.append(fragment)
                continue
            store, divide = self.tree.store_of(fragment), partial(self._divided, fragment)
            live, dead = await get_then(store, fragment.path, divide, self.runtime)
            if whole.keeper is None and portion.is_full(live.rows, self.options.fragment_bytes):
                found.append(await self._stored(portion, None, names))
                portion = _Portion()
            portion.fragments.append(fragment)
            portion.add(live, dead)
        return [*found, await self._stored(portion, whole.keeper, names)]

    def _divided(self, fragment: Fragment, data: bytes) -> tuple[_Hashed, _Hashed]:
        """What lives in a fragment and what does not, which together are what was promised."""
        check_bytes(data, fragment)
        parts = survivors_of(data, fragment, verify=False).divide(self.live)
        live, dead = (_Hashed(each, each.setsum) for each in parts)
        check_sum(live.setsum + dead.setsum, fragment.setsum, fragment.path, fragment.path)
        return live, dead

    async def _stored(
        self, portion: _Portion, keeper: Fragment | None, names: UploadNames
    ) -> Replaced:
        together = Group(tuple(portion.fragments), keeper)
        entry = together.entry
        if keeper is None:
            rows = joined(portion.kept)
            encoded = await self.runtime.compute(
                lambda: rows.encode(self.options.compression, portion.setsum)
            )
            first, last = entry.first_seq_no, entry.seq_no
            assert isinstance(first, int), "others are not compacted"
            assert isinstance(last, int), "others are not compacted"
            path = await put_once(
                self.store,
                lambda: names.compacted(first, last),
                encoded.data,
                Patience(self.runtime, self.options.timeout_s),
            )
            entry = msgspec.structs.replace(entry, rows=len(rows), base=None)
            entry = entry.linking(path, encoded)
        return Replaced(together, entry, portion.discarded, IndexSet.union(portion.dropped))
