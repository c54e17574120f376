"""How an option of a job is refused."""

from stratalog.errors import Invalid
from stratalog.herd import check_name
from stratalog.objectlog.holds import cursor_path
from stratalog.objectlog.stored import POLICY_CURSOR


def require(holds: bool, rule: str) -> None:
    """Refuse an option that breaks a rule."""
    if not holds:
        raise Invalid(f"not a legal option of a job: {rule}", hint="See docs/guide/pipeline.md.")


def check_cursor_and_job(cursor: str, job: str | None) -> None:
    """Refuse what cannot be the name of a cursor, or of a job that has outputs."""
    cursor_path(cursor)
    if job is not None:
        check_name(job, "job")


def check_here_max(here_max: int) -> None:
    """How many logs are done by this process is a number from 0 on."""
    require(here_max >= 0, "here_max is not negative")


def check_job_cursor(name: str) -> None:
    """Refuse a cursor that no job may move: that of a policy holds what lives in a log."""
    cursor_path(name)
    require(name != POLICY_CURSOR, f"the cursor {POLICY_CURSOR!r} belongs to the policy of a log")
