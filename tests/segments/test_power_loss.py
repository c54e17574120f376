"""Behaviours 3, 5, 6, 13, 17 and 23: power lost, or killed, at every file-system call."""

from __future__ import annotations

import pytest

from segments.power import Stage, survive_power_loss
from segments.stages import STAGES, WRITING, patched


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_nothing_promised_is_lost_wherever_the_power_goes(stage: Stage) -> None:
    with patched(stage):
        assert survive_power_loss(stage) > 10


@pytest.mark.parametrize("stage", WRITING, ids=lambda stage: stage.__name__)
def test_nor_where_a_write_and_its_sync_are_one_call(stage: Stage) -> None:
    with patched(stage):
        assert survive_power_loss(stage, at_once=True) > 10
