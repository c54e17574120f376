"""`fork`: a log that begins as another one did, and shares its objects."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from stratalog.cli import output
from stratalog.cli.groups import option
from stratalog.cli.parameters import place
from stratalog.cli.reply import Reply
from stratalog.errors import Conflict, Invalid
from stratalog.store import open_store, redact

if TYPE_CHECKING:
    from stratalog.objectlog.branch import Forked

Source = Annotated[str, place("SOURCE", "The log to begin with.")]
Target = Annotated[str, place("TARGET", "The new log. Nothing may be there yet.")]


def fork(
    source: Source,
    target: Target,
    at: int | None = option(
        "Fork before this offset. Without it, at the end.", metavar="OFFSET", min=1
    ),
    abort: bool = option("Give up a fork that was begun and not completed.", default=False),
    *,
    reply: Reply,
) -> None:
    """Branch a log: a new one that begins with the records of another.

    Nothing is copied, so it takes a moment however long the log is; both must
    lie on one store. Each goes on by itself, and neither's collection takes
    what the other needs: the fork holds a pin in its source. If the command is
    interrupted, run it again; a fork that is complete is left as it is.

    Examples:
      stratalog fork orders-log orders-experiment
      stratalog fork s3://bucket/logs/orders s3://bucket/logs/what-if --at 1000
    """
    if abort and at is not None:
        raise Invalid("--abort and --at exclude each other", hint="Give one of them.")
    if abort:
        reply.run(_abort(source, target))
        url = redact(open_store(target).url)
        reply.done({"url": url, "aborted": True}, f"gave up the fork at {url}")
        return
    from stratalog.objectlog.branch import fork as fork_log

    reply.result(reply.run(fork_log(source, target, at=at)), _facts, _show)


async def _abort(source: str, target: str) -> None:
    from stratalog.objectlog.holds import abort_fork, note_of
    from stratalog.objectlog.stored import load_any_manifest

    manifest, _ = await load_any_manifest(open_store(target))
    note, named = note_of(manifest), open_store(source).url
    if note is not None and note.source != named:
        raise Conflict(
            f"the fork at {target} is one of {note.source}",
            hint="Name the log that it was forked from.",
            expected=named,
            actual=note.source,
        )
    await abort_fork(target)


def _facts(forked: Forked) -> object:
    return {**asdict(forked), "url": redact(forked.url), "source": redact(forked.source)}


def _show(forked: Forked) -> None:
    if forked.is_new:
        output.say(
            f"forked {redact(forked.source)} at offset {forked.at} into {redact(forked.url)}"
        )
    else:
        output.say(
            f"{redact(forked.url)} is a fork of {redact(forked.source)} at offset {forked.at} "
            "already; nothing was changed"
        )
    if forked.held_by == "cursor":
        output.warn(
            f"wal3 made the source. The cursor {forked.hold} there keeps wal3 from collecting "
            f"anything from offset {forked.first_offset} on, as long as the fork needs it. "
            "To delete that cursor, or the source, damages the fork.",
        )
