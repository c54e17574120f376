"""How an option of a job is refused."""

from __future__ import annotations

from stratalog.errors import Invalid


def require(holds: bool, rule: str) -> None:
    """Refuse an option that breaks a rule."""
    if not holds:
        raise Invalid(f"not a legal option of a job: {rule}", hint="See docs/guide/pipeline.md.")
