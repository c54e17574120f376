"""How an option of a job is refused."""

from stratalog.errors import Invalid
from stratalog.herd import check_name
from stratalog.objectlog.holds import cursor_path
from stratalog.objectlog.stored import POLICY_CURSOR


def require(holds: bool, rule: str) -> None:
    """Refuse an option that breaks a rule."""
    if not holds:
        raise Invalid(f"not a legal option of a job: {rule}", hint="See docs/guide/pipeline.md.")


def check_names(cursor: str, job: str | None) -> None:
    """Refuse what cannot be the name of a cursor, or of a job that has outputs."""
    cursor_path(cursor)
    if job is not None:
        check_name(job, "job")


def check_job(job: str, cursor: str) -> None:
    """Refuse a cursor that no job may move, too: that of a policy holds what lives in a log."""
    check_name(job, "job")
    cursor_path(cursor)
    require(cursor != POLICY_CURSOR, f"the cursor {POLICY_CURSOR!r} belongs to the policy of a log")
