"""`migrate`: seal a log, and go on in another."""

from typing import Annotated

from stratalog.cli.commands.log.seal import Note, end_facts
from stratalog.cli.parameters import Url, place
from stratalog.cli.reply import Reply
from stratalog.store import open_store, redact


def migrate(
    url: Url,
    successor: Annotated[str, place("SUCCESSOR", "Where to go on. Nothing may be there yet.")],
    note: Note = "",
    *,
    reply: Reply,
) -> None:
    """Seal a log and go on in a new one, at the next offset.

    The place is checked before the log is sealed. Followers of the old log
    go on with the new one by themselves; writers get the new place with the
    error. A successor is named once. If the command is interrupted, run it
    again with the same places.

    Examples:
      stratalog migrate orders-log orders-log-2
      stratalog migrate s3://old/logs/orders s3://new/logs/orders
    """
    from stratalog.objectlog.branch import Sealer

    end = reply.run(Sealer(url).migrate(successor, note))
    before, after = redact(open_store(url).url), redact(open_store(successor).url)
    facts = {"url": before, "successor": after, **end_facts(end)}
    reply.done(facts, f"the log is sealed; it goes on at {after} with offset {end.offset}")
