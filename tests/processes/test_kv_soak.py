"""Behaviour 21 with real processes: killed, copied and moved stores agree in the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from soak.kv import Replica, kv_soak


@pytest.mark.slow
def test_behaviour_21_stores_that_are_killed_and_copied_hold_the_same_in_the_end(
    tmp_path: Path,
) -> None:
    report = asyncio.run(kv_soak(tmp_path, seed=1, kills_min=3, replicas=2))
    assert (report.kills, report.copies) == (3, 3)
    assert report.operations > 100
    assert report.live > 50
    assert report.segments < 15


def test_a_store_that_lost_an_acknowledged_operation_does_not_pass(tmp_path: Path) -> None:
    replica = Replica(tmp_path, "store", seed=1)
    replica.start(30)
    replica.finish()
    replica.acknowledged = 31
    with pytest.raises(AssertionError, match="30 is less than 31"):
        asyncio.run(replica.compare(replica.path))


def test_a_store_with_another_value_does_not_pass(tmp_path: Path) -> None:
    replica = Replica(tmp_path, "store", seed=1)
    replica.start(30)
    replica.finish()
    other = Replica(tmp_path, "store", seed=2)
    with pytest.raises(AssertionError, match="differs at 30"):
        asyncio.run(other.compare(other.path))
