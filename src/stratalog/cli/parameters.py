"""The arguments and options that commands share."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from stratalog.cli.groups import option
from stratalog.cli.values import duration_s, in_a_directory
from stratalog.errors import Invalid

OWN_PROCESS = "a process of its own"
"""The object of the context if nothing outlives the command but what is stored."""

PLACE = "a directory, or file://, s3://, gs:// or az://."
CREDENTIALS = "Credentials come from the environment."


def lasting(context: typer.Context, url: str) -> str:
    """Refuse a log in memory, which is gone when the command ends."""
    if context.resilient_parsing:
        return url
    if context.obj == OWN_PROCESS and url.lower().startswith("memory://"):
        raise Invalid(
            "a log in memory is gone when the command ends",
            hint="Name a directory or a bucket. memory:// is for tests in Python.",
        )
    return url


def place(metavar: str, help: str) -> Any:
    """An argument that says where a log or a herd lies."""
    return typer.Argument(metavar=metavar, callback=lasting, help=help)


DURATION: Any = {"parser": duration_s, "metavar": "DURATION"}
"""How an option takes a duration, such as 90s or 1h30m."""

FILE_TO_READ: Any = {"metavar": "FILE", "exists": True, "dir_okay": False}
"""How an option takes a file that must be there."""

FILE_TO_WRITE: Any = {"metavar": "FILE", "dir_okay": False, "callback": in_a_directory}
"""How an option takes a file whose directory must be there."""

Url = Annotated[str, place("URL", f"The log: {PLACE} {CREDENTIALS}")]
Root = Annotated[str, place("ROOT", f"The herd: {PLACE} {CREDENTIALS}")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits and underscores.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Interval = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0, help="What slow readers get before deletions begin."),
]

Server = Annotated[
    str, typer.Option(metavar="NAME", help="The name of this worker among the servers.")
]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="SQL",
        help="Keep the latest record of each key: an expression over body, offset, "
        "timestamp and log.",
    ),
]
Job = Annotated[str, typer.Option(metavar="NAME", help="The job: its outputs lie under its name.")]
CursorName = Annotated[
    str, typer.Option("--cursor", metavar="NAME", help="The cursor up to which logs are compacted.")
]
Sweep = Annotated[bool, typer.Option("--sweep", help="Also delete the objects that nothing links.")]
Keep = Annotated[int, typer.Option(metavar="N", min=1, help="How many audits are kept.")]

AGE_S = 600.0
RECORDS = 10_000

Records = Annotated[
    int, typer.Option(metavar="N", min=1, help="Select what has so many records waiting.")
]


@dataclass(frozen=True, slots=True)
class Dirty:
    age: float | None = option(
        "Select what has been dirty for so long.", show_default="10m", **DURATION
    )
    records: Records = RECORDS
