"""The pace of a soak wanders within its bounds, with bursts and silences, all from a seed."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from stratalog.soak.pace import BURST, FASTEST, SLOWEST, Pace


def test_the_rate_wanders_and_now_and_then_bursts_or_is_silent() -> None:
    pace = Pace(100.0, Random(1).random)
    seen: set[float] = set()
    for tick in range(1, 60_000):
        pace.due(tick / 100)
        seen.add(pace.current)
    calm = seen - {0.0, 100.0 * BURST}
    assert seen > calm, "neither a burst nor a silence"
    assert len(calm) > 100
    assert min(calm) >= 100.0 * SLOWEST
    assert max(calm) <= 100.0 * FASTEST
    assert max(calm) / min(calm) > 6
    assert 50 * 600 < pace.due(600) < 200 * 600


def test_the_same_seed_gives_the_same_pace() -> None:
    paces = [Pace(10.0, Random(7).random) for _ in range(2)]
    assert len({tuple(pace.due(s) for s in range(1, 100)) for pace in paces}) == 1


@given(st.integers(), st.lists(st.floats(0, 50), min_size=2, max_size=30))
def test_what_is_due_never_shrinks_and_does_not_depend_on_how_often_one_asks(
    seed: int, moments: list[float]
) -> None:
    often, seldom = Pace(1000.0, Random(seed).random), Pace(1000.0, Random(seed).random)
    due = [often.due(moment) for moment in sorted(moments)]
    assert due == sorted(due)
    assert abs(due[-1] - seldom.due(max(moments))) <= 1
