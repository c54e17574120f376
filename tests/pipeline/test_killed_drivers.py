"""A driver of a stream is killed at any moment, and every record is there once in the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from pipeline.killing import kill_again_and_again

KILLS = 3
"""`./dev soak` kills fifty times. A driver takes some seconds to start, and cores to itself."""


@pytest.mark.slow
def test_every_record_once_however_often_the_driver_is_killed(tmp_path: Path) -> None:
    outcome = asyncio.run(
        kill_again_and_again(
            (tmp_path / "source").as_uri(),
            (tmp_path / "target").as_uri(),
            tmp_path / "checkpoint",
            kills=KILLS,
            random=Random(5),
        )
    )
    assert outcome.copied > 100
    assert outcome.beside > 100
    assert outcome.batches >= KILLS
