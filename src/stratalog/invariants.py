"""Rules that must hold whatever happens. They are checked under ``python -O`` too."""

from __future__ import annotations


def invariant(holds: bool, rule: str) -> None:
    """Stop before harm is done if a rule of ours is broken: that is a defect, not an error."""
    if not holds:
        raise AssertionError(rule)
