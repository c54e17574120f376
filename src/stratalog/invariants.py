"""Rules that must hold whatever happens. They are checked under ``python -O`` too."""

from __future__ import annotations


def invariant(holds: bool, rule: str) -> None:
    """Stop before damage is done if an invariant is broken: that is a defect, not an error."""
    if not holds:
        raise AssertionError(rule)
