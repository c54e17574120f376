"""When the first batch of a producer fails, the next ones, which are on their way, wait for it. And
what a restart does not change.
"""

from __future__ import annotations

from random import Random

import pytest

from partitions.test_producers import DAY_US, OUT_OF_ORDER, batch
from stratalog.partitions import Producers, RefusedProducer
from stratalog.partitions.producers import AWAITED_US


def accept(producers: Producers, sequence: int, offset: int, now_us: int = 0) -> None:
    assert producers.judge(batch(sequence), now_us) is None
    producers.accept(batch(sequence), offset, now_us)


def refused(producers: Producers, sequence: int, now_us: int = 0) -> bool:
    try:
        producers.judge(batch(sequence), now_us)
    except RefusedProducer as error:
        return error.fault is OUT_OF_ORDER
    return False


@pytest.mark.parametrize("was_written", [True, False])
def test_the_next_ones_are_refused_until_the_first_comes_again(was_written: bool) -> None:
    producers = Producers()
    if was_written:
        accept(producers, 0, 0)
        producers.forget_in_flight()
    else:
        assert producers.judge(batch(0), 0) is None
        producers.failed(batch(0), 0)
    assert refused(producers, 1)
    accept(producers, 0, 0)
    accept(producers, 1, 1)


def test_a_producer_that_came_back_after_a_long_silence_is_awaited_too() -> None:
    producers, later = Producers(), DAY_US + 1
    accept(producers, 0, 0)
    producers.commit(1)
    accept(producers, 5, 1, later)
    producers.forget_in_flight()
    assert refused(producers, 6, later)
    accept(producers, 5, 1, later)
    accept(producers, 6, 2, later)


def test_a_producer_that_gives_its_first_batch_up_may_go_on_after_a_while() -> None:
    producers = Producers()
    accept(producers, 0, 0)
    producers.forget_in_flight()
    assert refused(producers, 1, AWAITED_US - 1)
    accept(producers, 1, 0, AWAITED_US)


def test_a_producer_that_gives_its_first_batch_up_may_begin_another_epoch() -> None:
    producers = Producers()
    accept(producers, 0, 0)
    producers.forget_in_flight()
    assert producers.judge(batch(0, epoch=1), 0) is None


@pytest.mark.parametrize("seed", range(20))
def test_who_is_forgotten_is_a_function_of_the_log_and_not_of_the_process(seed: int) -> None:
    random = Random(seed)
    lasting, restarted = Producers(producers_max=3), Producers(producers_max=3)
    now_us = 0
    for offset in range(100):
        now_us += random.randrange(DAY_US // 2)
        made = batch(random.randrange(100), producer=random.randrange(6), epoch=random.randrange(2))
        for producers in (lasting, restarted):
            producers.accept(made, offset, now_us)
            producers.commit(offset + 1)
        if random.random() < 0.2:
            restarted = Producers.restored(restarted.snapshot(), producers_max=3)
        assert list(restarted) == list(lasting)
        assert len(lasting) <= 3
