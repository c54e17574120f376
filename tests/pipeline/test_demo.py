"""The demo is the main job: a small one runs, proves itself and leaves its report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 280.0


@pytest.mark.slow
def test_a_small_demo(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "demo.py", "--shops", "6", "--orders", "6000"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "Proved: " in done.stdout
    assert "shop-000" in done.stdout
    assert "Compacted, as their policies say" in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert "<svg" in (ROOT / "build" / "demo-report.html").read_text()
