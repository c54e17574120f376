"""The history checker: for each rule, a history that keeps it and one that it must reject."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from stratalog.errors import Conflict, Unknown
from stratalog.testing.history import (
    Append,
    History,
    HistoryViolation,
    Placed,
    Read,
    Row,
    Seen,
    check_appends,
)

A, B, C, D = b"a", b"b", b"c", b"d"


def rows(*bodies: bytes, first: int = 1) -> list[Row]:
    """A log with these bodies, where time equals ten times the offset."""
    return [(offset, offset * 10, body) for offset, body in enumerate(bodies, first)]


def acknowledged(history: History, *bodies: bytes, at: int, expected: int | None = None) -> None:
    number = history.call("client", Append(bodies, expected))
    history.ok(number, Placed(at, at * 10))


def failed(history: History, *bodies: bytes, expected: int | None = None) -> None:
    history.failed(history.call("client", Append(bodies, expected)), Conflict("no"))


def unknown(history: History, *bodies: bytes, expected: int | None = None) -> None:
    history.unknown(history.call("client", Append(bodies, expected)))


def read(history: History, from_offset: int, seen: list[Row], tail: int | None = None) -> None:
    history.ok(history.call("reader", Read(from_offset)), Seen(tuple(seen), tail))


def rejected(rule: str, history: History, records: list[Row], first_offset: int = 1) -> str:
    with pytest.raises(HistoryViolation) as caught:
        check_appends(history, records, first_offset=first_offset)
    assert caught.value.rule == rule
    return str(caught.value)


def test_an_empty_history_explains_an_empty_log() -> None:
    check_appends(History(), [])


def test_acknowledged_appends_in_a_row_are_accepted() -> None:
    history = History()
    acknowledged(history, A, at=1)
    acknowledged(history, B, C, at=2)
    acknowledged(history, D, at=4, expected=4)
    read(history, 2, rows(B, C, first=2), tail=5)
    check_appends(history, rows(A, B, C, D))


def test_a_log_may_start_at_another_offset() -> None:
    history = History()
    acknowledged(history, A, at=100)
    check_appends(history, rows(A, first=100), first_offset=100)
    rejected("dense", history, rows(A, first=100))


def test_a_gap_is_rejected() -> None:
    history = History()
    acknowledged(history, A, at=1)
    acknowledged(history, B, at=3)
    rejected("dense", history, [(1, 10, A), (3, 30, B)])


def test_time_that_goes_back_is_rejected_and_time_that_stands_still_is_not() -> None:
    history = History()
    unknown(history, A)
    unknown(history, B)
    check_appends(history, [(1, 10, A), (2, 10, B)])
    rejected("time", history, [(1, 10, A), (2, 9, B)])


def test_a_record_that_is_there_twice_is_rejected() -> None:
    history = History()
    acknowledged(history, A, at=1)
    rejected("once", history, rows(A, A))


def test_a_record_that_nobody_wrote_is_rejected() -> None:
    history = History()
    acknowledged(history, A, at=1)
    assert "b'b'" in rejected("origin", history, rows(A, B))


def test_a_lost_acknowledged_append_is_rejected() -> None:
    history = History()
    acknowledged(history, A, at=1)
    acknowledged(history, B, at=2)
    rejected("acknowledged", history, rows(A))


def test_an_append_at_another_position_than_acknowledged_is_rejected() -> None:
    history = History()
    first = history.call("one", Append((A,)))
    second = history.call("two", Append((B,)))
    history.ok(first, Placed(1, 10))
    history.ok(second, Placed(2, 20))
    check_appends(history, rows(A, B))
    rejected("acknowledged", history, rows(B, A))


def test_another_timestamp_than_acknowledged_is_rejected() -> None:
    history = History()
    acknowledged(history, A, at=1)
    rejected("acknowledged", history, [(1, 11, A)])


def test_an_append_that_failed_must_not_appear() -> None:
    history = History()
    failed(history, A)
    check_appends(history, [])
    rejected("not-happened", history, rows(A))


def test_an_append_of_unknown_outcome_may_appear_or_not() -> None:
    history = History()
    unknown(history, A)
    history.call("client", Append((B,)))
    check_appends(history, [])
    check_appends(history, rows(A))
    check_appends(history, rows(B, A))


@pytest.mark.parametrize(
    "torn",
    [(A, B), (A, C), (B, C), (B, A, C), (A, D, B, C)],
    ids=["no end", "no middle", "no start", "order", "not side by side"],
)
def test_a_torn_append_is_rejected_also_when_its_outcome_is_unknown(torn: tuple[bytes]) -> None:
    history = History()
    unknown(history, A, B, C)
    unknown(history, D)
    check_appends(history, rows(D))
    check_appends(history, rows(D, A, B, C))
    rejected("atomic", history, rows(*torn))


def test_a_torn_acknowledged_append_is_rejected() -> None:
    history = History()
    acknowledged(history, A, B, at=1)
    rejected("atomic", history, rows(A))


def test_a_conditional_append_elsewhere_is_rejected_also_when_its_outcome_is_unknown() -> None:
    history = History()
    unknown(history, A)
    unknown(history, B, expected=2)
    check_appends(history, rows(A))
    check_appends(history, rows(A, B))
    rejected("conditional", history, rows(B, A))


def test_an_append_called_after_another_was_acknowledged_must_come_after_it() -> None:
    history = History()
    acknowledged(history, B, at=2)
    acknowledged(history, A, at=1)
    message = rejected("real-time", history, rows(A, B))
    assert "offset 2" in message


def test_concurrent_appends_may_land_in_any_order() -> None:
    history = History()
    first = history.call("one", Append((A,)))
    second = history.call("two", Append((B,)))
    history.ok(first, Placed(2, 20))
    history.ok(second, Placed(1, 10))
    check_appends(history, rows(B, A))


def test_an_append_of_unknown_outcome_comes_after_what_was_acknowledged_before_its_call() -> None:
    history = History()
    acknowledged(history, B, at=2)
    unknown(history, A)
    rejected("real-time", history, rows(A, B))


def test_an_append_of_unknown_outcome_may_land_after_later_ones() -> None:
    history = History()
    unknown(history, A)
    acknowledged(history, B, at=1)
    check_appends(history, rows(B, A))


def test_an_append_called_after_a_record_was_read_must_come_after_it() -> None:
    history = History()
    unknown(history, B)
    unknown(history, C)
    read(history, 2, [(2, 20, B)])
    unknown(history, A)
    rejected("real-time", history, rows(A, B))
    check_appends(history, rows(C, B, A))


def test_a_batch_is_taken_up_to_its_end() -> None:
    history = History()
    acknowledged(history, A, B, at=1)
    read(history, 1, [], tail=2)
    rejected("tail", history, rows(A, B))


def test_a_read_of_another_record_than_the_final_one_is_rejected() -> None:
    history = History()
    unknown(history, A)
    unknown(history, B)
    read(history, 1, [(1, 10, B)])
    rejected("read", history, rows(A, B))


def test_a_read_beyond_the_final_log_is_rejected() -> None:
    history = History()
    unknown(history, A)
    unknown(history, B)
    read(history, 1, rows(A, B))
    check_appends(history, rows(A, B))
    rejected("read", history, rows(A))


@pytest.mark.parametrize("seen", [[1, 3], [2], [1, 1]], ids=["gap", "late start", "twice"])
def test_a_read_that_is_not_gapless_is_rejected(seen: list[int]) -> None:
    history = History()
    log = rows(A, B, C)
    for body in (A, B, C):
        unknown(history, body)
    read(history, 1, [log[offset - 1] for offset in seen])
    rejected("read", history, log)


def test_a_tail_below_what_was_acknowledged_before_is_rejected() -> None:
    history = History()
    acknowledged(history, A, at=1)
    read(history, 1, [], tail=1)
    rejected("tail", history, rows(A))


def test_a_tail_that_goes_back_is_rejected() -> None:
    history = History()
    unknown(history, A)
    unknown(history, B)
    read(history, 3, [], tail=3)
    read(history, 2, [], tail=2)
    rejected("tail", history, rows(A, B))


def test_a_tail_read_while_an_append_was_under_way_may_miss_it() -> None:
    history = History()
    reading = history.call("reader", Read(1))
    acknowledged(history, A, at=1)
    history.ok(reading, Seen((), 1))
    check_appends(history, rows(A))


def test_a_tail_beyond_the_final_log_is_rejected() -> None:
    history = History()
    acknowledged(history, A, at=1)
    read(history, 1, [], tail=3)
    rejected("tail", history, rows(A))


def test_a_tail_below_what_the_same_read_saw_is_rejected() -> None:
    history = History()
    unknown(history, A)
    read(history, 1, rows(A), tail=1)
    rejected("tail", history, rows(A))


def test_bodies_must_be_unique() -> None:
    history = History()
    unknown(history, A)
    unknown(history, A)
    with pytest.raises(ValueError, match="unique"):
        check_appends(history, [])


def test_an_operation_returns_once() -> None:
    history = History()
    number = history.call("client", Append((A,)))
    history.unknown(number)
    with pytest.raises(ValueError, match="returned already"):
        history.ok(number, Placed(1, 10))


def test_events_at_one_instant_of_the_clock_keep_their_order() -> None:
    history = History(clock=lambda: 5.0)
    acknowledged(history, B, at=2)
    acknowledged(history, A, at=1)
    rejected("real-time", history, rows(A, B))


def test_histories_of_processes_with_one_clock_are_merged() -> None:
    first, second = (
        History(clock=iter([1.0, 2.0]).__next__),
        History(clock=iter([3.0, 4.0]).__next__),
    )
    acknowledged(first, B, at=2)
    acknowledged(second, A, at=1)
    second.merge(first)
    rejected("real-time", second, rows(A, B))


@dataclass
class Position:
    offset: int
    timestamp_us: int


def test_observed_appends_are_recorded_by_what_their_error_means() -> None:
    async def attempt(outcome: BaseException | Position) -> Position:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def main() -> History:
        history = History()
        await history.observe("client", Append((A,)), attempt(Position(1, 10)))
        for body, error in ((B, Conflict("no")), (C, Unknown("?")), (D, asyncio.CancelledError())):
            with pytest.raises(type(error)):
                await history.observe("client", Append((body,)), attempt(error))
        return history

    history = asyncio.run(main())
    assert [each.outcome for each in history.operations] == ["ok", "failed", "unknown", "unknown"]
    check_appends(history, rows(A, D, C))


def test_a_long_history_is_checked() -> None:
    history = History()
    bodies = [b"%d" % number for number in range(20_000)]
    for number, body in enumerate(bodies, 1):
        acknowledged(history, body, at=number)
    check_appends(history, rows(*bodies))
