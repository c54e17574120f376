"""Behaviour 17: ENOSPC and EIO at every file-system call, without a restart.

Only errors of known kinds come up, nothing acknowledged is lost, what an error said did not happen
is never found, and afterwards everything works.
"""

from __future__ import annotations

import pytest

from segments.failing import survive_failures
from segments.power import Scenario
from segments.scenarios import SCENARIOS, WRITING, patched


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_failing_disk_costs_nothing_that_was_promised(scenario: Scenario) -> None:
    with patched(scenario):
        assert survive_failures(scenario) > 10


@pytest.mark.parametrize("scenario", WRITING, ids=lambda scenario: scenario.__name__)
def test_nor_does_one_that_writes_and_syncs_in_one_call(scenario: Scenario) -> None:
    with patched(scenario):
        assert survive_failures(scenario, at_once=True) > 10
