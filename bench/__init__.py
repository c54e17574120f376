"""Measurements: ``./dev bench object-log``. Results as data, charts drawn from that data.

Speed is a ratio within one run, against the unavoidable work done by a straight loop.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The S3 server of the tests serves the benches too.
sys.path.append(str(ROOT / "tests"))
