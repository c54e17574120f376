"""Behaviours 3, 5, 6, 13, 17 and 23: power lost, or killed, at every file-system call."""

from __future__ import annotations

import pytest

from segments.power import Scenario, calls_of_step, prologue, survive_power_loss
from segments.scenarios import ALL, SCENARIOS, WRITING, patched, writing_over


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.__name__)
def test_nothing_promised_is_lost_wherever_the_power_goes(scenario: Scenario) -> None:
    with patched(scenario):
        assert survive_power_loss(scenario) > 10


@pytest.mark.parametrize("scenario", WRITING, ids=lambda scenario: scenario.__name__)
def test_nor_where_a_write_and_its_sync_are_one_call(scenario: Scenario) -> None:
    with patched(scenario):
        assert survive_power_loss(scenario, at_once=True) > 10


def test_a_step_that_is_cut_short_writes_over_wal_files() -> None:
    (scenario,) = [each for each in SCENARIOS if each.step is writing_over]
    calls = calls_of_step(scenario, prologue(scenario))
    renamed = [call for call in calls if call.operation == "rename" and "wal/" in call.path]
    assert len(renamed) == 2
