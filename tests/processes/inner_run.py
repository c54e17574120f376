"""A small test run of its own, with the configuration of ours and nothing of the one it is in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
AS_DEV_DOES = ("-n", "2", "--dist", "loadgroup")
ENDS_WITHIN_S = 60
_OF_THIS_RUN = ("PYTEST_", "STRATALOG_TEST_")


def run_pytest(folder: Path, tests: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run these tests, with our hooks and fixtures, as ``./dev test`` does. It leaves nothing."""
    (folder / "test_session.py").write_text(tests)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_OF_THIS_RUN)}
    configured = ("-p", "conftest", "-p", "no:cacheprovider", "-c", TESTS.parent / "pyproject.toml")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *configured, *AS_DEV_DOES, folder],
        env={**kept, "PYTHONPATH": str(TESTS), "TMPDIR": str(folder), **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=ENDS_WITHIN_S,
    )
