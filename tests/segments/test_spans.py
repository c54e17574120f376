"""Behaviour 24: an entry covers a span of indexes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segments.disks import SMALL, as_after_a_crash, found, run
from stratalog.errors import Invalid, NotFound, Trimmed
from stratalog.indexset import IndexSet
from stratalog.segments import (
    Disk,
    DiskOptions,
    Entries,
    Entry,
    MemoryTransport,
    Partition,
    receive_partition,
    send_partition,
)
from stratalog.segments.format.entries import SPAN_MAX

SPANS = [3, 1, 4, 1, 5, 9]
ENDS = [3, 4, 8, 9, 14, 23]
PAYLOADS = [b"%d" % span * span for span in SPANS]


async def memory(_: Disk) -> None:
    """Nothing is flushed."""


async def segment(disk: Disk) -> None:
    await disk.flush()


Place = Callable[[Disk], Awaitable[None]]
places = pytest.mark.parametrize("place", [memory, segment], ids=lambda place: place.__name__)


async def written(disk: Disk, place: Place, name: str = "p") -> Partition:
    """Entries of the spans above, and one of one index at the end, which stays in memory."""
    part = await disk.partition(name)
    assert await part.append(PAYLOADS, spans=SPANS) == IndexSet(range(1, 24))
    await place(disk)
    await part.append([b"end"])
    return part


def covering(index: int) -> int:
    """The place of the entry that covers an index."""
    return next(at for at, end in enumerate([*ENDS, 24]) if index <= end)


def shown(listed: Sequence[Entry]) -> list[tuple[int, int, bytes]]:
    return [(entry.index, entry.span, entry.payload) for entry in listed]


ALL = [
    *[(end - span + 1, span, each) for end, span, each in zip(ENDS, SPANS, PAYLOADS, strict=True)],
    (24, 1, b"end"),
]


class TestReading:
    @places
    def test_any_index_inside_a_span_finds_its_entry(self, tmp_path: Path, place: Place) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await written(disk, place)
                for index in range(1, 25):
                    expected = ALL[covering(index)]
                    assert shown([await part.get(index)]) == [expected]
                    assert shown(await found(part, range(index, index + 1))) == [expected]
                    some = await part.fetch_stored(index, 1)
                    assert shown(list(some)) == [expected]
                    in_memory = part.fetch(index, 1)
                    if place is memory or index == 24:
                        assert in_memory == some
                    else:
                        assert in_memory is None
                assert shown(await found(part)) == ALL
                assert await part.fetch_stored(25, 1) == Entries.of([])
                with pytest.raises(NotFound):
                    await part.get(25)

        run(main())

    @places
    def test_it_is_so_after_a_restart(self, tmp_path: Path, place: Place) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await written(disk, place)
                before = (part.last, part.epoch, part.lineage, part.indexes)
            for _ in range(2):
                async with await Disk.open(tmp_path, SMALL) as disk:
                    part = await disk.partition("p")
                    assert (part.last, part.epoch, part.lineage, part.indexes) == before
                    assert part.tail == (24, 1)
                    assert shown(await found(part)) == ALL
                as_after_a_crash(tmp_path)

        run(main())

    def test_a_read_of_some_gives_each_entry_once(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await written(disk, segment)
                wanted = IndexSet.of([2, 3, 6, 7, 20, 24])
                assert shown(await found(part, wanted)) == [ALL[0], ALL[2], ALL[5], ALL[6]]

        run(main())

    @given(
        spans=st.lists(st.integers(1, 40), min_size=1, max_size=60),
        index=st.integers(0, 100),
        bytes_max=st.integers(1, 300),
    )
    def test_fetch_gives_whole_entries_from_the_one_that_covers_the_index(
        self, spans: list[int], index: int, bytes_max: int
    ) -> None:
        stored = Entries.following(7, 3, [bytes(span % 11) for span in spans], spans)
        index += 8
        if index > stored.last:
            return
        some = stored.fitting(index, bytes_max)
        listed = list(stored)
        at = next(place for place, entry in enumerate(listed) if entry.last >= index)
        assert list(some) == listed[at : at + len(some)]
        assert some.payload_bytes <= bytes_max or len(some) == 1
        if at + len(some) < len(listed):
            following = listed[at + len(some)]
            assert some.payload_bytes + len(following.payload) > bytes_max


class TestEnds:
    """Truncation and checkpoints only at ends of entries."""

    @places
    def test_a_checkpoint_in_the_middle_of_an_entry_is_invalid(
        self, tmp_path: Path, place: Place
    ) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await written(disk, place)
                for index in range(1, 24):
                    if index not in ENDS:
                        with pytest.raises(Invalid, match="middle of an entry"):
                            await part.checkpoint(index, b"state")
                assert part.status().checkpoint == 0
                for index in ENDS:
                    await part.checkpoint(index, b"state", IndexSet.of([2]))
                assert shown([await part.get(1)]) == [ALL[0]]

        run(main())

    @places
    def test_a_cut_in_the_middle_of_an_entry_is_invalid(self, tmp_path: Path, place: Place) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await written(disk, place)
                for index in range(1, 24):
                    if index not in ENDS:
                        with pytest.raises(Invalid, match="middle of an entry"):
                            await part.truncate(index)
                        with pytest.raises(Invalid, match="middle of an entry"):
                            await part.write(index, Entries.following(index, 2, [b"x"]))
                assert (part.last, part.tail) == (24, (24, 1))
                for index in reversed(ENDS):
                    await part.truncate(index)
                    assert part.last == index
                    assert shown(await found(part)) == ALL[: covering(index) + 1]
                await part.truncate(0)
                assert part.last == 0

        run(main())

    def test_in_flight_entries_have_no_other_ends(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                first = part.submit(0, Entries.following(0, 1, PAYLOADS, SPANS))
                with pytest.raises(Invalid, match="middle of an entry"):
                    part.submit(5, Entries.following(5, 2, [b"x"]))
                part.submit(8, Entries.following(8, 2, [b"x"], [2]))
                with pytest.raises(Invalid, match="middle of an entry"):
                    part.submit(9, Entries.following(9, 3, [b"x"]))
                await first
                await disk.flush()
                assert shown(await found(part)) == [*ALL[:3], (9, 2, b"x")]

        run(main())


class TestOverwriting:
    @places
    def test_a_suffix_goes_with_its_spans(self, tmp_path: Path, place: Place) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await written(disk, place)
                await part.write(8, Entries.following(8, 2, [b"new", b"er"], [2, 30]))
                expected = [*ALL[:3], (9, 2, b"new"), (11, 30, b"er")]
                assert part.last == 40
                assert shown(await found(part)) == expected
                await disk.flush()
                assert shown(await found(part)) == expected
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                assert shown(await found(part)) == expected
                assert part.lineage.steps == ((1, 1), (9, 2))

        run(main())


class TestLiving:
    @places
    @pytest.mark.parametrize("compacts", [False, True])
    def test_an_entry_lives_if_its_span_meets_the_live_set(
        self, tmp_path: Path, place: Place, compacts: bool
    ) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await written(disk, place)
                live = IndexSet.of([2, 22, 23])
                await part.checkpoint(23, b"state", live)
                await disk.flush()
                await part.append([b"newest"])
                await disk.flush()
                if compacts:
                    assert await part.compact()
                    assert part.status().segment_bytes < 500
                for index in live:
                    assert shown([await part.get(index)]) == [ALL[covering(index)]]
                if compacts or place is memory:
                    with pytest.raises(Trimmed):
                        await part.get(5)
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                assert part.live == live
                assert shown(await found(part, live)) == [ALL[0], ALL[5]]

        run(main())

    def test_segments_without_a_live_span_go(self, tmp_path: Path) -> None:
        async def main() -> None:
            options = DiskOptions(
                wal_file_bytes=1 << 16, segment_entries_max=2, major_after_minors=None
            )
            async with await Disk.open(tmp_path, options) as disk:
                part = await written(disk, segment)
                await part.checkpoint(23, b"state", IndexSet.of([8]))
                assert [(first, last) for first, last, *_ in part.segments()] == [(5, 9), (10, 23)]
                assert shown([await part.get(6)]) == [ALL[2]]

        run(main())

    def test_an_index_that_was_not_named_is_dead_though_its_entry_is_here(
        self, tmp_path: Path
    ) -> None:
        """Live sets count indexes, though the entry that covers it is here."""

        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await written(disk, segment)
                await part.checkpoint(14, b"one", IndexSet(range(5, 9)))
                await part.checkpoint(23, b"two", IndexSet.of([7]))
                with pytest.raises(Invalid, match="not there any more"):
                    await part.checkpoint(24, b"three", IndexSet.of([6]))
                await part.checkpoint(24, b"three", IndexSet.of([7]))

        run(main())


class TestCopying:
    def test_a_replica_gets_the_same_spans(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with (
                await Disk.open(tmp_path / "a", SMALL) as one,
                await Disk.open(tmp_path / "b", SMALL) as other,
            ):
                part = await written(one, segment)
                await part.checkpoint(14, b"state", IndexSet.of([2, 7]))
                here, there = MemoryTransport.pair()
                copy = await other.partition("p")
                await asyncio.gather(send_partition(part, here), receive_partition(copy, there))
                assert copy.live == part.live
                assert copy.tail == part.tail
                assert shown(await found(copy)) == [ALL[0], ALL[2], ALL[5], ALL[6]]
                for index in (2, 7, 17):
                    assert await copy.get(index) == await part.get(index)

        run(main())


class TestWhatIsRefused:
    @pytest.mark.parametrize("spans", [[0], [-1], [SPAN_MAX + 1], [1.0], ["1"], [True], [1, 1], []])
    def test_spans_that_no_entry_has(self, spans: list[int]) -> None:
        with pytest.raises(Invalid):
            Entries.following(0, 1, [b"one"], spans)

    def test_of_many_entries_too(self) -> None:
        payloads = [b"x"] * 100
        for wrong in (0, SPAN_MAX + 1):
            with pytest.raises(Invalid):
                Entries.following(0, 1, payloads, [1] * 99 + [wrong])

    def test_entries_that_cover_an_index_twice(self) -> None:
        with pytest.raises(Invalid, match="ascend"):
            Entries.of([Entry(1, 1, b"", 3), Entry(3, 1, b"")])

    def test_the_largest_span_is_taken(self) -> None:
        for count in (1, 40):
            made = Entries.following(5, 1, [b"x"] * count, [SPAN_MAX] * count)
            assert made.last == 5 + count * SPAN_MAX
            assert made.indexes == IndexSet(range(6, made.last + 1))
            assert list(made.spans) == [SPAN_MAX] * count

    def test_one_that_would_reach_beyond_the_last_index(self) -> None:
        with pytest.raises(Invalid):
            Entries.following((1 << 63) - 5, 1, [b"x"], [10])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=40))
def test_few_entries_are_made_as_many_are(drawn: list[tuple[int, int]]) -> None:
    """Two ways to the same heads."""
    payloads = [bytes(size) for size, _ in drawn]
    spans = [span for _, span in drawn]
    at_once = Entries.following(11, 5, payloads, spans)
    one_by_one, index = [], 12
    for each, span in zip(payloads, spans, strict=True):
        one_by_one.append(Entry(index, 5, each, span))
        index += span
    assert at_once == Entries.of(one_by_one)
    assert at_once.indexes == IndexSet(range(12, index))
    assert at_once.last == index - 1
