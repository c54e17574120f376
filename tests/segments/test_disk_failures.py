"""Behaviour 17: ENOSPC and EIO at every file-system call, without a restart.

Only errors of known kinds come up, nothing acknowledged is lost, what an error said did not happen
is never found, and afterwards everything works.
"""

from __future__ import annotations

import pytest

from segments.failing import survive_failures
from segments.power import Stage
from segments.stages import STAGES, WRITING, patched


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_a_failing_disk_costs_nothing_that_was_promised(stage: Stage) -> None:
    with patched(stage):
        assert survive_failures(stage) > 10


@pytest.mark.parametrize("stage", WRITING, ids=lambda stage: stage.__name__)
def test_nor_does_one_that_writes_and_syncs_in_one_call(stage: Stage) -> None:
    with patched(stage):
        assert survive_failures(stage, at_once=True) > 10
