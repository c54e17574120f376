"""Small journals, frequent checkpoints of notes, and Hypothesis without a time limit for each
example: a busy machine is no fault of the code."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import settings

from stratalog.segments import notes
from stratalog.segments.inspect import disk_snapshot
from stratalog.segments.write_ahead import journal

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def small_journals() -> Iterator[None]:
    """Of a page, so that many of them cost little."""
    with (
        patch.object(journal, "FILE_BYTES_MIN", 32768),
        patch.object(notes, "LOGGED_BYTES_MIN", 40),
        patch.object(disk_snapshot, "PAUSE_S", 0.005),
    ):
        yield
