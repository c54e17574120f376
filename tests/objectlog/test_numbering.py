"""The numbers of a writer: what is new, missing, late or there twice."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from soak.described import RUN, batch, record, records
from stratalog.objectlog.check import numbering
from stratalog.objectlog.check.numbering import Numbers, Seen, Stretch, stretches_of


def test_numbers_that_follow_each_other_are_new() -> None:
    numbers = Numbers()
    assert numbers.see(0, 3) == [Seen("new", 0, 3)]
    assert numbers.see(3, 1) == [Seen("new", 3, 1)]
    assert (numbers.next, numbers.missing) == (4, [])


def test_what_is_passed_over_is_missing_until_it_comes() -> None:
    numbers = Numbers()
    assert numbers.see(2, 1) == [Seen("missing", 0, 2), Seen("new", 2, 1)]
    assert numbers.see(1, 1) == [Seen("late", 1, 1)]
    assert numbers.missing == [(0, 1)]
    assert numbers.see(1, 1) == [Seen("twice", 1, 1)]


def test_a_log_whose_beginning_is_gone_may_begin_with_any_number() -> None:
    numbers = Numbers(17)
    assert numbers.see(17, 2) == [Seen("new", 17, 2)]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=15))
def test_every_number_is_judged_as_a_set_would_judge_it(stretches: list[tuple[int, int]]) -> None:
    numbers, seen = Numbers(), set[int]()
    for first, count in stretches:
        before = numbers.next
        found: dict[int, str] = {}
        for part in numbers.see(first, count):
            if part.how == "missing":
                assert (part.first, part.first + part.count) == (before, first)
            else:
                found |= dict.fromkeys(range(part.first, part.first + part.count), part.how)
        assert found == {
            number: "new" if number >= before else "twice" if number in seen else "late"
            for number in range(first, first + count)
        }
        seen |= set(range(first, first + count))
        assert numbers.next == max(before, first + count)
        missing = {each for low, high in numbers.missing for each in range(low, high)}
        assert missing == set(range(numbers.next)) - seen


@given(st.integers(0, 3), st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=15))
def test_what_was_forgotten_is_never_called_late_or_twice_alone(
    remembered: int, stretches: list[tuple[int, int]]
) -> None:
    numbers, seen = Numbers(), set[int]()
    with patch.object(numbering, "MISSING_RANGES_MAX", remembered):
        for first, count in stretches:
            for part in numbers.see(first, count):
                held = [number in seen for number in range(part.first, part.first + part.count)]
                assert part.how != "twice" or all(held)
                assert part.how != "late" or not any(held)
            seen |= set(range(first, first + count))


def test_numbers_outside_of_what_was_forgotten_are_told_apart() -> None:
    numbers = Numbers()
    with patch.object(numbering, "MISSING_RANGES_MAX", 1):
        for first in (1, 3, 5):
            numbers.see(first, 1)
        assert numbers.see(0, 7) == [
            Seen("late", 0, 1),
            Seen("twice", 1, 1),
            Seen("late-or-twice", 2, 3),
            Seen("twice", 5, 1),
            Seen("new", 6, 1),
        ]


def test_neighbours_of_one_writer_are_one_stretch() -> None:
    other = "ff" * 8
    bodies = [
        *records(1, range(3)),
        record(2, 0),
        record(1, 3),
        b"of another kind",
        record(1, 4),
        record(1, 5, other),
        record(1, 7),
        record(1, 6)[:-1],
    ]
    stretches, broken = stretches_of(batch(10, bodies))
    assert stretches == [
        Stretch(RUN, 1, 0, 3, 10),
        Stretch(RUN, 2, 0, 1, 13),
        Stretch(RUN, 1, 3, 1, 14),
        Stretch(RUN, 1, 4, 1, 16),
        Stretch(other, 1, 5, 1, 17),
        Stretch(RUN, 1, 7, 1, 18),
    ]
    assert [each.offset for each in broken] == [19]


def test_a_batch_without_such_records_gives_nothing() -> None:
    assert stretches_of(batch(1, [b"", b"plain", b"\x93SOAK"])) == ([], [])
