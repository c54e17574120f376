"""Many members, lost answers, crashes: what no member may ever see, nobody sees."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from broker.groups.planted import PLANTS
from broker.groups.rebalancing import BrokenPromise, play

SEEDS = range(12)


def breaks_a_promise(seed: int) -> bool:
    try:
        play(seed)
    except BrokenPromise:
        return True
    return False


@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_of_a_group_is_broken(seed: int) -> None:
    observer = play(seed)
    assert len(observer.generations) > 3
    assert observer.stable > 5
    assert observer.commits > 20
    assert observer.fetches > 10


@pytest.mark.parametrize("planted_bug", PLANTS, ids=lambda each: each.__name__)
def test_a_planted_bug_is_found(planted_bug: Callable[[], AbstractContextManager[None]]) -> None:
    with planted_bug():
        assert any(breaks_a_promise(seed) for seed in SEEDS)


def test_a_seed_gives_the_same_run_twice() -> None:
    first, second = play(3), play(3)
    assert first.sent == second.sent
    assert list(first.generations) == list(second.generations)
