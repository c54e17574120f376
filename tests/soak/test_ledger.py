"""The account of a soak: what fits, what does not, and by which rule."""

from __future__ import annotations

import pytest

from soak.described import RUN, TIME_US, batch, record, records
from stratalog.objectlog.check import numbering
from stratalog.soak.ledger import Ledger


def new_ledger(first_offset: int = 1, *, alone: bool = True) -> Ledger:
    return Ledger(RUN, first_offset, alone=alone)


def rules(ledger: Ledger) -> set[str]:
    return {violation.rule for violation in ledger.violations}


def appended(ledger: Ledger, writer: int, count: int, offset: int) -> None:
    """An append that was acknowledged before anybody read it."""
    ledger.acknowledge(ledger.call(writer, count), offset, TIME_US)


def test_what_was_acknowledged_and_then_read_is_forgotten() -> None:
    ledger = new_ledger()
    one, two = ledger.open_writer(), ledger.open_writer()
    appended(ledger, one, 2, 1)
    appended(ledger, two, 1, 3)
    assert (ledger.lag, ledger.remembered) == (3, 2)
    ledger.see(batch(1, [*records(one, range(2)), record(two, 0)]))
    ledger.finish()
    assert not ledger.violations
    assert (ledger.read, ledger.lag, ledger.remembered) == (3, 0, 0)


def test_what_was_read_before_its_answer_came_is_compared_with_the_answer() -> None:
    ledger = new_ledger()
    writer = ledger.open_writer()
    good, bad = ledger.call(writer, 1), ledger.call(writer, 1)
    ledger.see(batch(1, records(writer, range(2))))
    ledger.acknowledge(good, 1, TIME_US)
    assert not ledger.violations
    ledger.acknowledge(bad, 7, TIME_US)
    assert rules(ledger) == {"position"}


def test_an_acknowledged_record_that_the_reader_has_passed_is_lost() -> None:
    ledger = new_ledger()
    one, two = ledger.open_writer(), ledger.open_writer()
    appended(ledger, one, 1, 1)
    appended(ledger, two, 1, 2)
    ledger.see(batch(1, [record(two, 0)]))
    assert "lost" in rules(ledger)
    assert "writer 1" in str([v.detail for v in ledger.violations if v.rule == "lost"])


def test_an_acknowledged_record_that_never_comes_is_lost_at_the_end() -> None:
    ledger = new_ledger()
    appended(ledger, ledger.open_writer(), 3, 1)
    assert not ledger.violations
    ledger.finish()
    assert rules(ledger) == {"lost"}


def test_a_record_that_is_acknowledged_after_the_reader_has_passed_its_place_is_lost() -> None:
    ledger = new_ledger(alone=False)
    call = ledger.call(ledger.open_writer(), 1)
    ledger.see(batch(1, [b"somebody else's"]))
    ledger.acknowledge(call, 1, TIME_US)
    assert rules(ledger) == {"lost"}


def test_a_record_that_is_there_twice_is_told() -> None:
    ledger = new_ledger()
    writer = ledger.open_writer()
    appended(ledger, writer, 1, 1)
    ledger.call(writer, 1)
    ledger.see(batch(1, [record(writer, 0), record(writer, 0)]))
    assert rules(ledger) == {"once"}


def test_a_record_that_comes_again_after_all_of_its_writer_was_matched_is_told() -> None:
    ledger = new_ledger()
    writer = ledger.open_writer()
    appended(ledger, writer, 1, 1)
    ledger.retire(writer)
    ledger.see(batch(1, [record(writer, 0)]))
    assert not ledger.violations
    ledger.see(batch(2, [record(writer, 0)]))
    assert rules(ledger) == {"once"}


def test_records_of_a_writer_in_another_order_than_its_calls_are_told() -> None:
    ledger = new_ledger()
    writer = ledger.open_writer()
    appended(ledger, writer, 1, 1)
    appended(ledger, writer, 1, 2)
    ledger.see(batch(1, [record(writer, 1), record(writer, 0)]))
    assert {"order", "position"} <= rules(ledger)


def test_a_record_that_may_be_late_or_there_twice_is_told_by_its_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(numbering, "MISSING_RANGES_MAX", 0)
    ledger = new_ledger()
    writer = ledger.open_writer()
    for offset in (1, 2):
        appended(ledger, writer, 1, offset)
    ledger.see(batch(1, [record(writer, 1), record(writer, 0)]))
    assert "order" in rules(ledger)
    assert "once" not in rules(ledger)


def test_a_record_at_another_time_than_acknowledged_is_told() -> None:
    ledger = new_ledger()
    writer = ledger.open_writer()
    ledger.acknowledge(ledger.call(writer, 1), 1, TIME_US + 1)
    ledger.see(batch(1, [record(writer, 0)]))
    assert rules(ledger) == {"position"}


def test_a_failed_append_that_is_read_is_told_whichever_comes_first() -> None:
    for failed_first in (True, False):
        ledger = new_ledger()
        writer = ledger.open_writer()
        call = ledger.call(writer, 2)
        if failed_first:
            ledger.fail(call)
        ledger.see(batch(1, records(writer, range(2))))
        if not failed_first:
            ledger.fail(call)
        assert rules(ledger) == {"not-happened"}
        assert ledger.failed == 2


def test_an_unknown_append_may_be_there_once_or_not_at_all() -> None:
    ledger = new_ledger()
    for number, lands in ((1, True), (2, False)):
        writer = ledger.open_writer()
        ledger.doubt(ledger.call(writer, 1))
        ledger.retire(writer)
        if lands:
            ledger.see(batch(number, [record(writer, 0)]))
    ledger.finish()
    assert not ledger.violations
    assert (ledger.unknown, ledger.landed) == (2, 1)
    ledger.see(batch(2, [record(1, 0)]))
    assert rules(ledger) == {"once"}


def test_an_unknown_append_that_was_read_before_the_doubt_counts_as_landed() -> None:
    ledger = new_ledger()
    writer = ledger.open_writer()
    call = ledger.call(writer, 2)
    ledger.see(batch(1, records(writer, range(2))))
    ledger.doubt(call)
    ledger.retire(writer)
    assert (ledger.landed, ledger.remembered, ledger.violated) == (2, 0, 0)


def test_a_torn_batch_is_told() -> None:
    ledger = new_ledger()
    one, two = ledger.open_writer(), ledger.open_writer()
    ledger.call(one, 2)
    ledger.call(two, 1)
    ledger.see(batch(1, [record(one, 0), record(two, 0), record(one, 1)]))
    assert rules(ledger) == {"atomic"}


def test_half_of_an_unknown_batch_is_told_at_the_end() -> None:
    ledger = new_ledger()
    writer = ledger.open_writer()
    ledger.doubt(ledger.call(writer, 2))
    ledger.see(batch(1, [record(writer, 0)]))
    assert not ledger.violations
    ledger.finish()
    assert rules(ledger) == {"atomic"}


def test_an_append_that_lands_before_what_was_known_when_it_was_called_is_told() -> None:
    ledger = new_ledger()
    one, two = ledger.open_writer(), ledger.open_writer()
    first = ledger.call(one, 1)
    ledger.acknowledge(first, 2, TIME_US)
    ledger.call(two, 1)
    ledger.see(batch(1, [record(two, 0), record(one, 0)]))
    assert rules(ledger) == {"real-time"}


def test_a_gap_in_the_offsets_is_told() -> None:
    ledger = new_ledger()
    writer = ledger.open_writer()
    ledger.call(writer, 2)
    ledger.see(batch(1, [record(writer, 0)]))
    ledger.see(batch(3, [record(writer, 1)]))
    assert "dense" in rules(ledger)


def test_time_that_goes_back_is_told() -> None:
    ledger = new_ledger()
    writer = ledger.open_writer()
    ledger.call(writer, 2)
    ledger.see(batch(1, [record(writer, 0)], TIME_US))
    ledger.see(batch(2, [record(writer, 1)], TIME_US - 1))
    assert rules(ledger) == {"time"}


@pytest.mark.parametrize(
    "body",
    [b"no description", record(1, 5), record(9, 0), record(1, 0, run="ff" * 8)],
    ids=["plain", "not called yet", "no such writer", "another run"],
)
def test_what_nobody_wrote_is_told_in_a_log_of_its_own(body: bytes) -> None:
    ledger = new_ledger()
    ledger.call(ledger.open_writer(), 1)
    ledger.see(batch(1, [body]))
    assert rules(ledger) == {"origin"}


def test_records_of_others_are_counted_in_a_log_that_is_shared() -> None:
    ledger = new_ledger(alone=False)
    writer = ledger.open_writer()
    appended(ledger, writer, 1, 2)
    ledger.see(batch(1, [b"plain", record(writer, 0), record(1, 0, run="ff" * 8)]))
    ledger.finish()
    assert not ledger.violations
    assert (ledger.read, ledger.others) == (1, 2)


def test_a_changed_record_is_told() -> None:
    ledger = new_ledger()
    writer = ledger.open_writer()
    appended(ledger, writer, 1, 1)
    ledger.see(batch(1, [record(writer, 0)[:-1] + b"?"]))
    assert rules(ledger) == {"changed", "lost"}


def test_what_was_skipped_counts_as_lost() -> None:
    ledger = new_ledger()
    appended(ledger, ledger.open_writer(), 1, 1)
    ledger.skip_to(2)
    assert rules(ledger) == {"lost"}


def test_only_the_first_violations_are_kept_and_all_are_counted() -> None:
    ledger = new_ledger()
    for number in range(500):
        ledger.violate("read", f"{number}")
    assert (ledger.violated, len(ledger.violations)) == (500, 100)
    assert ledger.violations[-1].detail == "99"
