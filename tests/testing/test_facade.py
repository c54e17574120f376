"""``stratalog.testing`` offers all that it names, and loads pytest only for those who need it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import stratalog.testing


def test_everything_that_is_named_is_there() -> None:
    for name in stratalog.testing.__all__:
        assert getattr(stratalog.testing, name) is not None


def test_anything_else_is_not() -> None:
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = stratalog.testing.Nonsense


def test_the_simulation_needs_no_pytest() -> None:
    program = "import sys, stratalog.testing; sys.exit('pytest' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
