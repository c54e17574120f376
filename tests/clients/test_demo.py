"""`./dev demo serve`: a small one kills its broker, and proves that nothing was lost or doubled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 120.0


@pytest.mark.slow
def test_a_small_demo_of_the_broker(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.demo_serve", "--records", "60000"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the broker served again" in done.stdout
    assert "60,000 stored: nothing is missing, nothing doubled" in done.stdout
    assert done.stdout.count("  proven  ") == 5
    assert "exit code 0" in done.stdout
    assert list(tmp_path.iterdir()) == []
