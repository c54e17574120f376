"""What a stretch adds up to follows from the sums at its two ends."""

from __future__ import annotations

from random import Random

from soak.described import TIME_US, batch
from stratalog.setsum import Setsum
from stratalog.soak.prefix_sums import KEPT_MAX, PrefixSums, sum_of_batch


def filled(batches: int) -> PrefixSums:
    sums = PrefixSums(1)
    for number in range(batches):
        made = batch(1 + 2 * number, [b"%d" % number, b"more"])
        sums.add(3 + 2 * number, sum_of_batch(made))
    return sums


def item(offset: int, body: bytes) -> bytes:
    return offset.to_bytes(8, "big") + TIME_US.to_bytes(8, "big") + body


def test_the_sum_of_a_stretch_is_that_of_its_records_alone() -> None:
    expected = Setsum.of(item(3, b"1"), item(4, b"more"), item(5, b"2"), item(6, b"more"))
    assert filled(4).between(3, 7) == expected


def test_a_stretch_is_drawn_between_known_ends_within_what_is_allowed() -> None:
    sums, random = filled(20), Random(1)
    drawn = {sums.draw(random.random, 11, 38) for _ in range(300)}
    assert None not in drawn
    assert all(each is not None and 11 <= each[0] < each[1] <= 37 for each in drawn)
    assert len(drawn) > 50
    assert sums.draw(random.random, 41) is None


def test_only_the_newest_sums_are_kept() -> None:
    sums = filled(KEPT_MAX + 10)
    assert len(sums.offsets()) == KEPT_MAX
    assert sums.between(1, 3) is None
