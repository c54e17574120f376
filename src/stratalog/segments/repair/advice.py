"""The hint of an error that refuses to open: which command repairs it, and what that gives up."""

from stratalog.errors import Corrupt, StratalogError
from stratalog.segments.io import ReadableFiles
from stratalog.segments.repair.plan import make_plan

LOSSES_TOLD_MAX = 5


def with_advice(error: Corrupt, files: ReadableFiles) -> Corrupt:
    """The same error. Its own hint comes first."""
    told = error.copy()
    told.hint = f"{error.hint} {_advice(files)}"
    return told


def _advice(files: ReadableFiles) -> str:
    try:
        plan = make_plan(files)
    except (StratalogError, OSError):
        return "`stratalog disk repair` cannot save anything here."
    if not plan.losses:
        return "`stratalog disk repair DIR --accept-loss` would give up nothing."
    told = "; ".join(str(each) for each in plan.losses[:LOSSES_TOLD_MAX])
    more = len(plan.losses) - LOSSES_TOLD_MAX
    return (
        "Or `stratalog disk repair DIR --accept-loss`, which would give up: "
        f"{told}{f'; and {more} more' if more > 0 else ''}."
    )
