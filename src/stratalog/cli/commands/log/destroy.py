"""`destroy`: delete a log for ever. Asks for its name first, unless --yes is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.cli import output
from stratalog.cli.confirm import confirm, require_terminal
from stratalog.cli.parameters import Url, Yes
from stratalog.cli.reply import Reply
from stratalog.errors import NotFound
from stratalog.store import Store, open_store, redact

if TYPE_CHECKING:
    from stratalog.objectlog.stored import Manifest


def destroy(url: Url, yes: Yes = False, *, reply: Reply) -> None:
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
        _ask(store, reply)
    with reply.progress("destroying", unit="objects") as advance:
        work = destroy_log(store, on_progress=lambda gone: advance(gone.objects))
        report = reply.run(work)
    place, deleted = redact(report.url), report.deleted
    amount = f"{output.count(deleted.objects, 'object')} ({output.size(deleted.bytes)})"
    reply.done({"url": place, "deleted": deleted}, f"destroyed the log at {place}: {amount}")


def _ask(store: Store, reply: Reply) -> None:
    require_terminal("a log is destroyed only after a person has confirmed it")
    manifest = reply.run(_look(store))
    place = redact(store.url)
    name = place.rstrip("/").rpartition("/")[2]
    held = "what a log has left" if manifest is None else output.count(manifest.count, "record")
    output.warn(f"{place} and its {held} will be gone for ever")
    confirm(name, purpose="destroy it", otherwise="nothing was destroyed")


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
