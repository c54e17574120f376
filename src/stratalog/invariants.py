"""Rules that must hold whatever happens. They are checked under ``python -O`` too."""


def invariant(holds: bool, rule: str) -> None:
    """Stop before damage is done if an invariant is broken: that is a defect, not an error."""
    if not holds:
        raise AssertionError(rule)
