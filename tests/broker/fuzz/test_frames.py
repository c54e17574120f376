"""Mutated frames, as many as CI has time for. `./dev soak frames` sends more."""

from __future__ import annotations

import pytest

from broker.fuzz.fuzzing import fuzz
from soak import frames

FRAMES = 8000


@pytest.mark.parametrize("seed", range(2))
def test_mutated_frames_are_answered_or_close_their_connection_and_nothing_else_notices(
    seed: int,
) -> None:
    found = fuzz(seed, FRAMES)
    assert found.frames >= FRAMES
    assert found.answers > FRAMES // 20
    assert found.closed > FRAMES // 50
    assert found.appended


def test_the_same_seed_sends_the_same_frames() -> None:
    assert fuzz(7, 200) == fuzz(7, 200)


def test_a_soak_goes_from_seed_to_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FRAMES_PER_SEED", 50)
    found, tried, _, _ = frames.soak_frames(120, seed=5)
    assert found.frames >= 120
    assert 20 <= tried <= 24
