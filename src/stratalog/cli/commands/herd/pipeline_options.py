"""The options that several commands of `pipeline` have, and the codes they end with."""

from typing import Annotated

import typer

from stratalog.cli import exits

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


def end(*, is_damaged: bool, is_partial: bool) -> None:
    """Exit with a code if something is damaged, or if some logs were not done."""
    if is_damaged:
        raise typer.Exit(exits.CORRUPT)
    if is_partial:
        raise typer.Exit(exits.NOT_HAPPENED)
