"""The decisions, each against a model that is plain: lineages, layouts, compaction, admission."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segments.disks import entries
from stratalog.errors import Conflict, Corrupt, Invalid, NotHappened
from stratalog.indexset import EMPTY, INDEX_MAX, IndexSet
from stratalog.segments.admit_write import Tail, admit, check_write, without_checkpointed
from stratalog.segments.format.entries import EPOCH_MAX, HEAD, Entries, Entry, damaged, divided
from stratalog.segments.format.layout import (
    PartitionLayout,
    SegmentFile,
    check_sequence,
    lineage_of,
)
from stratalog.segments.format.lineage import Lineage, steps_of
from stratalog.segments.maintenance.choose_segments import Share, dead_segments, needed, rewrites
from stratalog.segments.options import DiskOptions

# Lineages


@dataclass
class Histories:
    """Logs as writers make them: each epoch goes on from a place in the log of an older one."""

    logs: list[dict[int, int]] = field(default_factory=lambda: [{}])
    """The log of each epoch, whole: from index to epoch."""


@st.composite
def histories(draw: st.DrawFn) -> Histories:
    made = Histories()
    for epoch in range(1, draw(st.integers(1, 5)) + 1):
        before = draw(st.sampled_from(made.logs))
        place = draw(st.integers(0, max(before, default=0)))
        log = {index: each for index, each in before.items() if index <= place}
        for index in range(place + 1, place + 1 + draw(st.integers(1, 6))):
            log[index] = epoch
        made.logs.append(log)
    return made


def lineage_from(log: dict[int, int]) -> Lineage:
    return Lineage().after(0, sorted(log.items()))


@given(st.data(), histories())
def test_what_two_whole_logs_share_is_their_common_beginning(
    data: st.DataObject, made: Histories
) -> None:
    own, source = (
        {
            index: epoch
            for index, epoch in log.items()
            if index <= data.draw(st.shared(st.integers(0, 40), key=name))
        }
        for name in ("own", "source")
        for log in [data.draw(st.sampled_from(made.logs))]
    )
    check_shared(own, source)


@given(st.data(), histories())
def test_what_a_sparse_log_shares_with_a_whole_one_is_exactly_what_both_have(
    data: st.DataObject, made: Histories
) -> None:
    """Any entries may be missing of one's own: those that were dead when it was copied."""
    whole, source = (data.draw(st.sampled_from(made.logs)) for _ in range(2))
    kept = data.draw(st.sets(st.sampled_from(sorted(whole)))) if whole else set()
    check_shared({index: whole[index] for index in kept}, source)


def check_shared(own: dict[int, int], source: dict[int, int]) -> None:
    source_last = max(source, default=0)
    lineage = lineage_from(own)
    shared = lineage.shared_with(lineage_from(source), IndexSet.of(sorted(own)), source_last)
    expected = 0
    for index in sorted(own):
        if source.get(index) != own[index]:
            break
        expected = index
    assert {index for index in own if index <= shared} == {i for i in own if i <= expected}
    assert 0 <= shared <= max(own, default=0)


@given(histories(), st.integers(0, 40))
def test_a_lineage_tells_the_epoch_of_every_index(made: Histories, last: int) -> None:
    log = made.logs[-1]
    lineage = lineage_from(log)
    assert {index: lineage.epoch_of(index) for index in log} == log
    assert lineage.up_to(last) == lineage_from({i: e for i, e in log.items() if i <= last})


@given(histories(), st.data())
def test_a_lineage_knows_whether_entries_are_its_own(made: Histories, data: st.DataObject) -> None:
    log, other = (data.draw(st.sampled_from(made.logs[1:])) for _ in range(2))
    first = data.draw(st.sampled_from(sorted(other)))
    part = {index: epoch for index, epoch in other.items() if index >= first and index in log}
    if part:
        heads = Entries.of(Entry(index, epoch, b"") for index, epoch in part.items()).heads
        is_own = all(log[index] == epoch for index, epoch in part.items())
        assert lineage_from(log).numbered(heads) is is_own


@pytest.mark.parametrize("steps", [((5, 1), (5, 2)), ((1, 2), (5, 2)), ((1, 2), (5, 1))])
def test_steps_that_do_not_ascend_are_corrupt(steps: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(Corrupt):
        Lineage(steps)


@given(st.lists(st.integers(1, 4), max_size=20))
def test_steps_of_entries(epochs: list[int]) -> None:
    listed = sorted(epochs)
    heads = Entries.following(0, 1, [b""] * len(listed)).heads.copy()
    heads["epoch"] = listed
    expected = [(at + 1, each) for at, each in enumerate(listed) if each not in listed[:at]]
    assert list(steps_of(heads)) == expected


# Layouts


def segment(number: int, indexes: IndexSet, previous: int, size: int = 100) -> SegmentFile:
    return SegmentFile(
        path=f"seg/{number}",
        size=size,
        indexes=indexes,
        previous=previous,
        steps=((indexes.first or 1, 1),),
        lowest=number,
        highest=number,
        entries=len(indexes),
    )


index_sets = st.sets(st.integers(1, 60), min_size=1).map(lambda some: IndexSet.of(sorted(some)))


@st.composite
def layouts(draw: st.DrawFn) -> PartitionLayout:
    """Files that follow one another, some of them sparse."""
    files, last = [], 0
    for number in range(1, draw(st.integers(0, 6)) + 1):
        gaps = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
        indexes = IndexSet.of([last + sum(gaps[: at + 1]) for at in range(len(gaps))])
        files.append(segment(number, indexes, last))
        last = indexes.last or last
    return PartitionLayout(1, "p", tuple(files))


def check_disjoint(layout: PartitionLayout) -> None:
    last = 0
    for file in layout.files:
        assert file.indexes, "a file without anything valid"
        assert (file.indexes.first or 0) > last, "files overlap"
        last = file.indexes.last or 0
    assert len({file.path for file in layout.files}) == len(layout.files)


@given(layouts(), st.integers(0, 60))
def test_cutting_keeps_exactly_what_is_below(layout: PartitionLayout, after: int) -> None:
    cut = layout.cut_after(after)
    check_disjoint(cut)
    assert cut.indexes == layout.indexes.limit(after)
    assert cut.cut_after(after) == cut
    assert [file.path for file in cut.files] == [
        file.path for file in layout.files if (file.indexes.first or 0) <= after
    ]


@given(layouts(), st.integers(0, 60), st.lists(st.integers(1, 3), max_size=5))
def test_a_flush_replaces_what_it_overwrites(
    layout: PartitionLayout, after: int, gaps: list[int]
) -> None:
    new = IndexSet.of([after + sum(gaps[: at + 1]) for at in range(len(gaps))])
    files = [segment(99, new, after)] if new else []
    flushed = layout.flushed(after, files)
    check_disjoint(flushed)
    assert flushed.indexes == layout.indexes.limit(after) | new


@given(layouts(), st.data())
def test_a_replacement_holds_what_was_copied_and_is_still_valid(
    layout: PartitionLayout, data: st.DataObject
) -> None:
    """Between the copy and the record sources may be cut, dropped, and newer files may come."""
    if not layout.files:
        return
    start = data.draw(st.integers(0, len(layout.files) - 1))
    stop = data.draw(st.integers(start + 1, len(layout.files)))
    sources = layout.files[start:stop]
    keep = data.draw(index_sets)
    copied = IndexSet.union(file.indexes for file in sources) & keep
    by = segment(50, copied, sources[0].previous) if copied else None

    now = layout
    if data.draw(st.booleans()):
        after = data.draw(st.integers(0, 60))
        now = now.flushed(after, [segment(99, IndexSet.of([after + 1, after + 3]), after)])
    dropped = data.draw(st.sets(st.sampled_from([file.path for file in layout.files])))
    now = now.replaced(dropped, None)
    check_disjoint(now)

    paths = [file.path for file in sources]
    left = IndexSet.union(file.indexes for file in now.files if file.path in paths)
    others = IndexSet.union(file.indexes for file in now.files if file.path not in paths)
    replaced = now.replaced(paths, by)
    check_disjoint(replaced)
    assert replaced.indexes == others | (left & copied)
    assert not {file.path for file in replaced.files} & set(paths)


@given(layouts(), st.integers(0, 60))
def test_a_whole_sequence_is_found_whole_and_a_missing_file_is_told(
    layout: PartitionLayout, missing: int
) -> None:
    last = layout.indexes.last or 0
    assert check_sequence(layout) == last
    if missing < len(layout.files) - 1:
        left = [file for at, file in enumerate(layout.files) if at != missing]
        broken = PartitionLayout(1, "p", tuple(left))
        with pytest.raises(Corrupt, match="lacks what lies between"):
            check_sequence(broken)


@given(layouts())
def test_the_lineage_of_files(layout: PartitionLayout) -> None:
    steps = lineage_of(layout, Lineage()).steps
    assert steps == (((layout.files[0].indexes.first or 0, 1),) if layout.files else ())


# Compaction


@given(index_sets, st.integers(0, 60), index_sets)
def test_what_is_needed(live: IndexSet, checkpoint: int, some: IndexSet) -> None:
    kept = {index for index in some if index > checkpoint or index in live}
    assert set(some & needed(live, checkpoint)) == kept


@given(layouts(), st.just(EMPTY) | index_sets, st.integers(0, 60))
def test_dead_segments_are_those_of_which_nothing_is_needed_but_the_newest(
    layout: PartitionLayout, live: IndexSet, checkpoint: int
) -> None:
    live = live.limit(checkpoint)
    dead = [
        file
        for file in layout.files[:-1]
        if not any(index > checkpoint or index in live for index in file.indexes)
    ]
    assert dead_segments(layout.files, live, checkpoint) == dead


@st.composite
def shares(draw: st.DrawFn) -> list[Share]:
    made = []
    for number in range(1, draw(st.integers(0, 8)) + 1):
        size = draw(st.integers(1, 10))
        file = segment(number, IndexSet(range(number * 100, number * 100 + size)), 0)
        alive = draw(st.integers(0, size))
        whole = draw(st.integers(size, 20 * size))
        alive_bytes = draw(st.integers(0, whole)) if alive else 0
        made.append(Share(file, alive, alive_bytes, whole))
    return made


@given(shares(), st.integers(1, 15), st.integers(1, 150))
def test_rewrites_take_neighbours_that_are_sparse_and_fit_together(
    listed: list[Share], entries_max: int, bytes_max: int
) -> None:
    options = DiskOptions(
        live_share_min=0.5, segment_entries_max=entries_max, segment_bytes_max=bytes_max
    )
    groups = rewrites(listed, options)
    of = {share.file.path: share for share in listed}
    places = {share.file.path: at for at, share in enumerate(listed)}
    taken = [file.path for group in groups for file in group]
    assert taken == sorted(set(taken), key=places.__getitem__)

    def is_left(share: Share) -> bool:
        is_dense = (
            2 * share.live_entries >= share.file.entries and 2 * share.live_bytes >= share.bytes
        )
        return is_dense or share.live_entries > entries_max or share.live_bytes > bytes_max

    assert taken == [share.file.path for share in listed if not is_left(share)]
    for group in groups:
        at = [places[file.path] for file in group]
        assert at == list(range(at[0], at[-1] + 1)), "not neighbours"
        assert fits(group, of, entries_max, bytes_max)
    for group, following in pairwise(groups):
        touch = places[following[0].path] == places[group[-1].path] + 1
        assert not touch or not fits([*group, following[0]], of, entries_max, bytes_max)


def fits(
    group: Sequence[SegmentFile], of: dict[str, Share], entries_max: int, bytes_max: int
) -> bool:
    return (
        sum(of[file.path].live_entries for file in group) <= entries_max
        and sum(of[file.path].live_bytes for file in group) <= bytes_max
    )


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 8), st.integers(1, 300))
def test_a_table_is_divided_into_files_that_keep_within_both_limits(
    sizes: list[int], entries_max: int, bytes_max: int
) -> None:
    whole = Entries.following(0, 1, [b"x" * size for size in sizes])
    parts = list(divided(whole, entries_max, bytes_max))
    assert [entry for part in parts for entry in part] == list(whole)
    for part in parts:
        assert 1 <= len(part) <= entries_max
        assert len(part) == 1 or part.stored_bytes <= bytes_max
    for part, following in pairwise(parts):
        is_full = len(part) == entries_max
        with_next = part.stored_bytes + len(following.payloads[0]) + HEAD.itemsize
        assert is_full or with_next > bytes_max


# Admission


@dataclass
class Log:
    """A log as a plain dictionary, and what its writer has been told."""

    content: dict[int, int] = field(default_factory=dict)
    is_gap_told: bool = False

    @property
    def last(self) -> int:
        return max(self.content, default=0)

    @property
    def epoch(self) -> int:
        return self.content.get(self.last, 0)

    def write(self, previous: int, indexes: list[int], epoch: int) -> type[Exception] | None:
        if previous == self.last and epoch < self.epoch:
            return Conflict
        if previous != self.last:
            if previous not in (0, *self.content) or previous > self.last:
                told, self.is_gap_told = self.is_gap_told, True
                return NotHappened if told else Conflict
            if epoch <= self.epoch:
                return Conflict
        self.content = {index: each for index, each in self.content.items() if index <= previous}
        self.content |= dict.fromkeys(indexes, epoch)
        self.is_gap_told = False
        return None


writes = st.tuples(
    st.integers(0, 12), st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(1, 4)
)


@given(st.lists(writes, max_size=25))
def test_admission_is_that_of_a_plain_log(listed: list[tuple[int, list[int], int]]) -> None:
    log, tail = Log(), Tail()
    for previous, gaps, epoch in listed:
        indexes = [previous + sum(gaps[: at + 1]) for at in range(len(gaps))]
        is_known = previous in (0, *log.content)
        expected = log.write(previous, indexes, epoch)
        try:
            admit(tail, previous, entries(indexes, epoch), 0, is_known=is_known)
        except NotHappened as error:
            assert type(error) is expected  # noqa: PT017
        else:
            assert expected is None
        assert (tail.index, tail.epoch) == (log.last, log.epoch)


@given(st.integers(0, 20), st.integers(1, 10), st.integers(0, 20))
def test_what_a_checkpoint_contains_is_left_out(previous: int, count: int, checkpoint: int) -> None:
    lineage = Lineage(((1, 1),))
    batch = entries(range(previous + 1, previous + 1 + count))
    after, needed_ones = without_checkpointed(previous, batch, checkpoint, lineage)
    assert list(needed_ones) == [entry for entry in batch if entry.index > checkpoint]
    if len(needed_ones):
        assert after == needed_ones.first - 1


@pytest.mark.parametrize(
    ("previous", "indexes"), [(0, []), (-1, [1]), (3, [3]), (3, [2, 4])], ids=str
)
def test_what_no_log_could_take(previous: int, indexes: list[int]) -> None:
    with pytest.raises(Invalid):
        check_write(previous, entries(indexes), 1000)


@given(
    previous=st.integers(0, INDEX_MAX - 20),
    epoch=st.integers(1, EPOCH_MAX),
    payloads=st.lists(st.binary(max_size=40), max_size=20),
)
def test_a_few_entries_are_made_as_many_are(
    previous: int, epoch: int, payloads: list[bytes]
) -> None:
    single = [Entry(previous + at, epoch, payload) for at, payload in enumerate(payloads, 1)]
    made = Entries.following(previous, epoch, payloads)
    assert made == Entries.of(single)
    assert list(made) == single
    assert not damaged(made.heads, made.payloads).any()
    assert made.payload_bytes == sum(map(len, payloads))


@pytest.mark.parametrize("others", [0, 100])
def test_a_payload_that_no_head_can_tell_the_size_of_is_refused(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    monkeypatch.setattr("stratalog.segments.format.entries.PAYLOAD_BYTES_MAX", 10)
    payloads = [b"x"] * others + [b"x" * 11]
    with pytest.raises(Invalid, match="up to 10 bytes"):
        Entries.following(0, 1, payloads)
    with pytest.raises(Invalid, match="up to 10 bytes"):
        Entries.of(Entry(index, 1, payload) for index, payload in enumerate(payloads, 1))
    assert len(Entries.following(0, 1, [b"x" * 10] * (others + 1))) == others + 1


def test_no_entries_are_made_of_nothing() -> None:
    assert len(Entries.following(0, 1, [])) == len(Entries.of([])) == 0
