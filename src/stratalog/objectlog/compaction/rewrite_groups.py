"""Which fragments a compaction changes, and how: decided from the number of live records in each.

    fragment        1     2     3     4     5     6     7
    live          100 %  10 %   0     5 %   100 %  0    100 %
    becomes         1    [  2–4: rewritten  ]  [5–6: 5]  7

    mostly dead     rewritten with its neighbours that are mostly dead as well, up to a size; so
                    is one that has a record which must go now
    without live    goes; its range goes to the fragment that is rewritten beside it, or else to a
                    neighbour, whose object stays as it is: before it, or at the beginning behind it
    otherwise       stays

A fragment with relative offsets begins where its entry does, so it cannot take over what lies
before it without being rewritten. Where nothing lives and no neighbour can take over, a fragment
without rows is left. Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from stratalog.objectlog.stored import Fragment, LogPosition, is_relative


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fragment, and how many of its records live."""

    fragment: Fragment
    live: int
    must_drop: bool = False
    """Whether it has a record that must go at once, however much lives beside it."""

    @property
    def live_bytes(self) -> int:
        """About how many bytes of it would stay."""
        return self.fragment.num_bytes * self.live // max(1, self.fragment.count)


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbours that become one entry: by writing their live records anew, or by ``keeper``,
    the one among them whose object stays and stands for all of them."""

    fragments: tuple[Fragment, ...]
    keeper: Fragment | None = None

    @property
    def entry(self) -> Fragment:
        """The entry that spans them all. What is written anew replaces its object and its sum."""
        first, last = self.fragments[0], self.fragments[-1]
        like = self.keeper or last
        return msgspec.structs.replace(
            like,
            seq_no=last.seq_no,
            seq_first=first.first_seq_no,
            start=LogPosition(first.start.offset, first.start.timestamp_us),
            limit=LogPosition(last.limit.offset, last.limit.timestamp_us),
            rows=like.count,
        )


def group(
    candidates: Sequence[Candidate], live_share_min: float, fragment_bytes: int
) -> list[Group]:
    """What to do with these neighbours, oldest first. What stays is in no group."""
    groups: list[Group] = []
    before: Candidate | None = None
    runs = list(_runs(candidates, live_share_min))
    for number, (kept, run) in enumerate(runs):
        if kept is not None:
            before = kept
            continue
        after = runs[number + 1][0] if number + 1 < len(runs) else None
        if any(each.live for each in run):
            groups += map(_rewritten, _portions(run, fragment_bytes))
        elif before is not None and before.fragment.is_ours_to_change:
            groups = _absorbed(groups, [before, *run], before)
        elif before is None and after is not None and after.fragment.is_ours_to_change:
            keeper = None if is_relative(after.fragment.path) else after
            groups = _absorbed(groups, [*run, after], keeper)
        elif any(each.fragment.count for each in run) or len(run) > 1:
            groups.append(_rewritten(run))
    return groups


def neighbourhoods(candidates: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """The candidates in stretches without a gap between them."""
    stretch: list[Candidate] = []
    for each in candidates:
        if stretch and stretch[-1].fragment.limit.offset != each.fragment.start.offset:
            yield stretch
            stretch = []
        stretch.append(each)
    if stretch:
        yield stretch


def _runs(
    candidates: Sequence[Candidate], live_share_min: float
) -> Iterator[tuple[Candidate | None, list[Candidate]]]:
    """In turn: a fragment that stays, or the neighbours between two of those."""
    run: list[Candidate] = []
    for each in candidates:
        is_dense = each.live >= live_share_min * each.fragment.count and each.live > 0
        if (is_dense and not each.must_drop) or not each.fragment.is_ours_to_change:
            if run:
                yield None, run
                run = []
            yield each, []
        else:
            run.append(each)
    if run:
        yield None, run


def _portions(run: Sequence[Candidate], fragment_bytes: int) -> Iterator[list[Candidate]]:
    portion: list[Candidate] = []
    size = 0
    for each in run:
        if portion and each.live and size and size + each.live_bytes > fragment_bytes:
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += each.live_bytes
    if portion:
        yield portion


def _rewritten(run: Sequence[Candidate]) -> Group:
    return Group(tuple(each.fragment for each in run))


def _absorbed(
    groups: Sequence[Group], run: Sequence[Candidate], keeper: Candidate | None
) -> list[Group]:
    """With this group; one that the first of the run has already begun goes on."""
    fragments = tuple(each.fragment for each in run)
    if groups and groups[-1].fragments[-1] is fragments[0]:
        last = groups[-1]
        return [*groups[:-1], replace(last, fragments=(*last.fragments, *fragments[1:]))]
    return [*groups, Group(fragments, None if keeper is None else keeper.fragment)]
