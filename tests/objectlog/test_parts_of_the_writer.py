"""The writer's pure parts, with whatever input: dividing, linking, judging, queueing."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stratalog as sl
from objectlog.whole_log import run
from stratalog.errors import Closed, Unavailable
from stratalog.objectlog.append.accumulator import (
    Accumulator,
    Result,
    Submission,
    UnwatchedFuture,
)
from stratalog.objectlog.append.answers import Answers
from stratalog.objectlog.append.units import divide, fragments_for
from stratalog.objectlog.options import RECORD_OVERHEAD_BYTES
from stratalog.objectlog.stats import WriterCounters
from stratalog.objectlog.stored.fragment import fragment_path
from stratalog.objectlog.stored.manifest import LINKED_MAX
from stratalog.objectlog.tree.link_fragments import link, note_linked
from stratalog.objectlog.tree.settle import Verdict, judge, judge_owner, only_the_past_changed

LIMIT_S = 20.0


def fragment(seq_no: int, first: int, count: int = 1, incarnation: str = "me") -> sl.Fragment:
    return sl.Fragment(
        path=fragment_path(seq_no, incarnation, seq_no),
        seq_no=seq_no,
        start=sl.LogPosition(first, 5),
        limit=sl.LogPosition(first + count, 5),
        num_bytes=100,
        setsum=sl.Setsum.of(b"%d-%d" % (first, count)),
    )


class TestDividing:
    @given(st.integers(0, 2**40), st.integers(1, 2**30))
    def test_no_more_fragments_than_are_needed_and_each_at_most_a_quarter_too_large(
        self, size: int, fragment_bytes: int
    ) -> None:
        count = fragments_for(size, fragment_bytes)
        assert count >= 1
        assert size <= count * fragment_bytes + fragment_bytes // 4
        assert count == 1 or size > (count - 1) * fragment_bytes + fragment_bytes // 4

    @given(st.lists(st.binary(max_size=60), min_size=1, max_size=60), st.integers(1, 20))
    def test_all_bodies_in_order_in_at_most_so_many_parts_of_about_the_same_size(
        self, bodies: list[bytes], count: int
    ) -> None:
        sizes = [len(body) + RECORD_OVERHEAD_BYTES for body in bodies]
        parts = divide(bodies, sum(sizes), count)
        assert [body for part, _ in parts for body in part] == bodies
        assert 1 <= len(parts) <= count
        for part, size in parts:
            assert part
            assert size == sum(len(body) + RECORD_OVERHEAD_BYTES for body in part)
            assert size < -(-sum(sizes) // count) + max(sizes)


class TestLinking:
    @given(st.lists(st.tuples(st.integers(0, 99).map(str), st.integers(0, 10**6)), max_size=300))
    def test_the_table_has_the_newest_incarnations_newest_last(
        self, links: list[tuple[str, int]]
    ) -> None:
        table: dict[str, int] = {}
        for incarnation, seq_no in links:
            before, rows = table, list(table.items())
            table = note_linked(before, incarnation, seq_no)
            assert list(table)[-1] == incarnation
            assert list(before.items()) == rows, "the old table is left as it was"
        newest: dict[str, int] = {}
        for incarnation, seq_no in reversed(links):
            if len(newest) < LINKED_MAX:
                newest.setdefault(incarnation, seq_no)
        assert list(table.items()) == list(reversed(newest.items()))

    @given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), max_size=12))
    def test_a_manifest_with_more_fragments_adds_up_and_continues(
        self, groups: list[list[int]]
    ) -> None:
        manifest = sl.Manifest.empty("me", "0")
        records = fragments = 0
        for number, counts in enumerate(groups):
            new: list[sl.Fragment] = []
            for count in counts:
                new.append(fragment(fragments + 1, records + 1, count))
                records, fragments = records + count, fragments + 1
            before, manifest = manifest, link(manifest, new, "me", "label", str(number))
            manifest.check()
            assert (manifest.tail.offset, manifest.next_seq_no) == (records + 1, fragments + 1)
            assert manifest.linked == {"me": fragments}
            assert manifest.acc_bytes == 100 * fragments
            assert not only_the_past_changed(before, manifest)
            assert judge(manifest, new, "me") is Verdict.HAPPENED
            assert judge(before, new, "me") is Verdict.DID_NOT

    @pytest.mark.parametrize("wrong", [fragment(3, 2), fragment(2, 3), fragment(1, 1)])
    def test_a_fragment_that_does_not_continue_the_log_is_never_linked(
        self, wrong: sl.Fragment
    ) -> None:
        manifest = link(sl.Manifest.empty("me", "0"), [fragment(1, 1)], "me", "label", "1")
        with pytest.raises(AssertionError):
            link(manifest, [wrong], "me", "label", "2")

    @settings(deadline=None)
    @given(
        others=st.integers(0, LINKED_MAX + 5),
        landed=st.booleans(),
        kept=st.integers(0, LINKED_MAX + 6),
    )
    def test_a_verdict_is_never_wrong_whoever_appended_since(
        self, others: int, landed: bool, kept: int
    ) -> None:
        """``kept`` fragments are left in the root; the older ones were rolled up or collected."""
        manifest = sl.Manifest.empty("me", "0")
        ours = [fragment(1, 1)]
        if landed:
            manifest = link(manifest, ours, "me", "label", "ours")
        for number in range(others):
            new = fragment(manifest.next_seq_no, manifest.tail.offset, 1, f"other{number}")
            manifest = link(manifest, [new], f"other{number}", "label", str(number))
        shown = min(len(manifest.fragments), max(1, kept))
        stored = sl.Manifest(
            setsum=manifest.setsum,
            acc_bytes=0,
            writer="",
            snapshots=(),
            fragments=manifest.fragments[len(manifest.fragments) - shown :],
            linked=manifest.linked,
        )
        verdict = judge(stored, ours, "me")
        truth = Verdict.HAPPENED if landed else Verdict.DID_NOT
        assert verdict in (truth, Verdict.OPEN)
        if others < LINKED_MAX or shown == len(manifest.fragments):
            assert verdict is truth

    def test_an_owner_with_a_foreign_name_tells_nothing(self) -> None:
        assert judge_owner(fragment(1, 1), "me") is Verdict.HAPPENED
        assert judge_owner(fragment(1, 1, 1, "other"), "me") is Verdict.DID_NOT
        stranger = sl.Fragment(
            path="log/somewhere.parquet",
            seq_no=1,
            start=sl.LogPosition(1),
            limit=sl.LogPosition(2),
            num_bytes=1,
            setsum=sl.Setsum.of(b"x"),
        )
        assert judge_owner(stranger, "me") is Verdict.OPEN


def submission(size: int = 1, records: int = 1, expected: int | None = None) -> Submission:
    future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    return Submission([b"x"] * records, size, future, 0.0, records == 1, expected)


queue_steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 50), st.integers(1, 4)),
        st.tuples(st.just("take"), st.integers(0, 120), st.just(0)),
        st.tuples(st.sampled_from(["pop", "push back", "stop"]), st.just(0), st.just(0)),
    ),
    max_size=60,
)


class TestTheQueue:
    @given(queue_steps)
    def test_it_keeps_the_order_and_knows_its_size(self, steps: list[tuple[str, int, int]]) -> None:
        async def main() -> None:
            queue = Accumulator(10**6, 10**6)
            model: deque[Submission] = deque()
            gone: list[Submission] = []
            for what, number, records in steps:
                if what == "push":
                    new = submission(number, records)
                    queue.push(new)
                    model.append(new)
                elif what == "take" and model:
                    taken, bodies, size = queue.take(number, 1)
                    assert taken == [model.popleft() for _ in taken]
                    assert len(bodies) == sum(len(each.bodies) for each in taken)
                    assert size == sum(each.size for each in taken)
                    assert len(taken) == 1 or size <= number
                    assert not model or size + model[0].size > number
                    gone = taken
                elif what == "pop" and model:
                    gone = [queue.pop()]
                    assert gone == [model.popleft()]
                elif what == "push back":
                    queue.push_back(gone)
                    model.extendleft(reversed(gone))
                    gone = []
                elif what == "stop":
                    assert queue.stop(Closed("stopped")) == list(model)
                    model.clear()
                assert len(queue) == len(model)
                assert queue.bytes == sum(each.size for each in model)
                assert queue.records == sum(len(each.bodies) for each in model)
                assert queue.first is (model[0] if model else None)
                assert queue.last is (model[-1] if model else None)

        run(main(), LIMIT_S)

    def test_it_takes_no_submission_that_would_land_elsewhere(self) -> None:
        async def main() -> None:
            queue = Accumulator(100, 100)
            for expected in (None, 12, 13, 99, None):
                queue.push(submission(expected=expected))
            taken, _, _ = queue.take(100, 11)
            assert [each.expected_offset for each in taken] == [None, 12, 13]
            assert [each.expected_offset for each in queue.leading_conditional()] == [99]

        run(main(), LIMIT_S)

    @settings(deadline=None)
    @given(
        sizes=st.lists(st.integers(1, 30), min_size=1, max_size=25),
        cancelled=st.sets(st.integers(0, 24)),
        takes=st.lists(st.integers(1, 60), max_size=10),
    )
    def test_turns_come_in_order_one_at_a_time_and_none_is_lost(
        self, sizes: list[int], cancelled: set[int], takes: list[int]
    ) -> None:
        room = 40

        async def main() -> None:
            queue = Accumulator(room, 10**6)
            order: list[int] = []

            async def enter(number: int) -> None:
                await queue.wait_for_room()
                assert queue.has_room(), "a turn without room"
                queue.push(submission(sizes[number]))
                order.append(number)
                assert queue.bytes < room + sizes[number]

            tasks = [asyncio.ensure_future(enter(number)) for number in range(len(sizes))]
            await asyncio.sleep(0)
            for number in cancelled & set(range(len(sizes))):
                tasks[number].cancel()
            for size in takes:
                if queue:
                    queue.take(size, 1)
                await asyncio.sleep(0)
            while not all(task.done() for task in tasks):
                if queue:
                    queue.pop()
                await asyncio.sleep(0)
            entered = [n for n, task in enumerate(tasks) if not task.cancelled()]
            assert order == entered
            assert set(range(len(sizes))) - cancelled <= set(entered)

        run(main(), LIMIT_S)

    def test_stopping_wakes_everybody_who_waits(self) -> None:
        async def main() -> None:
            queue = Accumulator(1, 1)
            queue.push(submission())
            waiting = [asyncio.ensure_future(queue.wait_for_room()) for _ in range(5)]
            await asyncio.sleep(0)
            assert len(queue.stop(Closed("stopped"))) == 1
            await asyncio.gather(*waiting)
            with pytest.raises(Closed):
                queue.check_open()

        run(main(), LIMIT_S)

    def test_a_failure_counts_as_seen_once_it_was_taken(self) -> None:
        async def main() -> None:
            answers = Answers(WriterCounters())
            future = UnwatchedFuture(loop=asyncio.get_running_loop())
            answers.fail([Submission([b"x"], 1, future, 0.0, True, None)], Unavailable("down"))
            assert isinstance(answers.take_unseen_failure(), Unavailable)
            assert answers.take_unseen_failure() is None

        run(main(), LIMIT_S)
