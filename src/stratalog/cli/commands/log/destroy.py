"""`destroy`: delete a log for ever. Asks for its name first, unless told not to."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.parameters import AsJson, Url, Verbose, run
from stratalog.errors import Invalid, NotFound, NotHappened
from stratalog.store import open_store, redact

if TYPE_CHECKING:
    from stratalog.objectlog.branch import DestroyReport
    from stratalog.objectlog.stored import Manifest
    from stratalog.store import Store


def destroy(
    url: Url,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Delete a log for ever, with its cursors and all that it owns.

    Asks for the log's name first. Refused, before anything is deleted, if a
    file that is not the log's lies among its objects, or if the log is pinned.
    After an interruption, run it again.

    Examples:
      stratalog destroy orders-log
      stratalog destroy s3://bucket/logs/orders --yes
    """
    from stratalog.objectlog.branch import destroy as destroy_log

    store = open_store(url)
    if not yes:
        _ask(store, verbose=verbose)

    async def work() -> DestroyReport:
        with output.progress("destroying", None, unit="objects", shown=not as_json) as advance:
            return await destroy_log(store, on_progress=lambda gone: advance(gone.objects))

    report = run(work(), verbose=verbose)
    place = redact(report.url)
    if as_json:
        output.write_json({"url": place, "deleted": asdict(report.deleted)})
    else:
        objects = output.count(report.deleted.objects, "object")
        size = output.size(report.deleted.bytes)
        output.say(f"destroyed the log at {place}: {objects} ({size})")


def _ask(store: Store, *, verbose: bool) -> None:
    """Go on only if a person types the name of the log."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise Invalid(
            "a log is destroyed only by somebody who says so",
            hint="Add --yes, or run the command on a terminal and answer its question.",
        )
    manifest = run(_look(store), verbose=verbose)
    place = redact(store.url)
    name = place.rstrip("/").rpartition("/")[2]
    held = "what a log has left" if manifest is None else output.count(manifest.count, "record")
    output.complain("warning", "yellow", f"{place} and its {held} will be gone for ever")
    sys.stderr.write(f"Type {name} to destroy it: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != name:
        raise NotHappened("nothing was destroyed", hint=f"Type {name} if you want it to be.")


async def _look(store: Store) -> Manifest | None:
    """What there is to destroy. None if it is less than a log; ``NotFound`` if it is nothing."""
    from stratalog.objectlog.stored import load_any_manifest

    try:
        manifest, _ = await load_any_manifest(store)
    except NotFound:
        async for _ in store.list():
            return None
        raise
    return manifest
