"""Behaviours 3, 5, 6, 13, 17 and 23: power lost, or killed, at every file-system call."""

from __future__ import annotations

import pytest

from segments.power import Scenario, survive_power_loss
from segments.scenarios import CLOSING, SCENARIOS, WRITING, patched


@pytest.mark.parametrize("scenario", [*SCENARIOS, CLOSING], ids=lambda scenario: scenario.__name__)
def test_nothing_promised_is_lost_wherever_the_power_goes(scenario: Scenario) -> None:
    with patched(scenario):
        assert survive_power_loss(scenario) > 10


@pytest.mark.parametrize("scenario", WRITING, ids=lambda scenario: scenario.__name__)
def test_nor_where_a_write_and_its_sync_are_one_call(scenario: Scenario) -> None:
    with patched(scenario):
        assert survive_power_loss(scenario, at_once=True) > 10
