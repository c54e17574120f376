"""`copy`: a log with objects of its own that begins as another one did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.cli import output
from stratalog.cli.commands.log.fork import Source, Target
from stratalog.cli.groups import option
from stratalog.cli.reply import Reply
from stratalog.store import redact

if TYPE_CHECKING:
    from stratalog.objectlog.branch import Copied


def copy(
    source: Source,
    target: Target,
    from_offset: int | None = option(
        "The first offset. Without it, the log's first.", "--from", metavar="N", min=1
    ),
    to_offset: int | None = option(
        "Stop before this offset. Without it, at the end.", "--to", metavar="N", min=1
    ),
    *,
    reply: Reply,
) -> None:
    """Copy a log to any store, verified: offsets, times and setsum stay the same.

    Also logs that wal3 made, and forks. If the command is interrupted, run it
    again: it goes on where it stopped. Until it is done, nobody can read or
    write the copy.

    Examples:
      stratalog copy orders-log s3://bucket/logs/orders
      stratalog copy s3://bucket/logs/orders slice --from 1000 --to 2000
    """
    from stratalog.objectlog.branch import CopyProgress, copy_log

    with reply.late_progress("copying", unit="records") as advance:

        def on_progress(done: CopyProgress) -> None:
            first = done.first_offset
            advance(done.next_offset - first, done.limit_offset - first)

        work = copy_log(
            source, target, from_offset=from_offset, to_offset=to_offset, on_progress=on_progress
        )
        copied = reply.run(work)
    reply.result(copied, _facts, _show)


def _facts(copied: Copied) -> object:
    return {
        "url": redact(copied.url),
        "source": redact(copied.source),
        "first_offset": copied.first_offset,
        "next_offset": copied.limit_offset,
        "records": copied.limit_offset - copied.first_offset,
        "fragments": copied.fragments,
        "bytes": copied.num_bytes,
        "setsum": copied.setsum.hexdigest(),
    }


def _show(copied: Copied) -> None:
    records = copied.limit_offset - copied.first_offset
    if not copied.fragments and records:
        output.say(f"{redact(copied.url)} is a copy of {redact(copied.source)} already")
        return
    what = output.count(copied.fragments, "fragment")
    output.say(
        f"copied {output.count(records, 'record')} of {redact(copied.source)} "
        f"to {redact(copied.url)}: {what} ({output.size(copied.num_bytes)})"
    )
    output.say(f"they begin at offset {copied.first_offset} and add up to what the source has")
