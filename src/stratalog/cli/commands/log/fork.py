"""`fork` and `copy`: a log that begins as another one did, sharing its objects or with its own."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.parameters import AsJson, Verbose, lasting, run
from stratalog.errors import Conflict, Invalid
from stratalog.store import open_store, redact

if TYPE_CHECKING:
    from stratalog.objectlog.branch import Copied, Forked

Source = Annotated[
    str, typer.Argument(metavar="SOURCE", callback=lasting, help="The log to begin with.")
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", callback=lasting, help="The new log. Nothing may be there yet."
    ),
]


def fork(
    source: Source,
    target: Target,
    at: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET", min=1, help="Fork before this offset. Without it, at the end."
        ),
    ] = None,
    abort: Annotated[
        bool, typer.Option("--abort", help="Give up a fork that was begun and not completed.")
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
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
        run(_abort(source, target), verbose=verbose)
        _tell_aborted(target, as_json)
        return
    from stratalog.objectlog.branch import fork as fork_log

    _tell_forked(run(fork_log(source, target, at=at), verbose=verbose), as_json)


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


def _tell_aborted(target: str, as_json: bool) -> None:
    place = redact(open_store(target).url)
    if as_json:
        output.write_json({"url": place, "aborted": True})
    else:
        output.say(f"gave up the fork at {place}")


def _tell_forked(forked: Forked, as_json: bool) -> None:
    if as_json:
        facts = {**asdict(forked), "url": redact(forked.url), "source": redact(forked.source)}
        output.write_json(facts)
        return
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
        output.complain(
            "warning",
            "yellow",
            f"wal3 made the source. The cursor {forked.hold} there keeps wal3 from collecting "
            f"anything from offset {forked.first_offset} on, as long as the fork needs it. "
            "Whoever deletes that cursor, or the source, damages the fork.",
        )


def copy(
    source: Source,
    target: Target,
    from_offset: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="N", min=1, help="The first offset. Without it, the log's first."
        ),
    ] = None,
    to_offset: Annotated[
        int | None,
        typer.Option(
            "--to", metavar="N", min=1, help="Stop before this offset. Without it, at the end."
        ),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
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

    async def work() -> Copied:
        with ExitStack() as stack:
            advance: output.Advance | None = None

            def on_progress(done: CopyProgress) -> None:
                nonlocal advance
                if advance is None:
                    total = done.limit_offset - done.first_offset
                    bar = output.progress("copying", total, unit="records", shown=not as_json)
                    advance = stack.enter_context(bar)
                advance(done.next_offset - done.first_offset)

            return await copy_log(
                source,
                target,
                from_offset=from_offset,
                to_offset=to_offset,
                on_progress=on_progress,
            )

    _tell_copied(run(work(), verbose=verbose), as_json)


def _tell_copied(copied: Copied, as_json: bool) -> None:
    records = copied.limit_offset - copied.first_offset
    if as_json:
        output.write_json(
            {
                "url": redact(copied.url),
                "source": redact(copied.source),
                "first_offset": copied.first_offset,
                "next_offset": copied.limit_offset,
                "records": records,
                "fragments": copied.fragments,
                "bytes": copied.num_bytes,
                "setsum": copied.setsum.hexdigest(),
            }
        )
        return
    if not copied.fragments and records:
        output.say(f"{redact(copied.url)} is a copy of {redact(copied.source)} already")
        return
    what = output.count(copied.fragments, "fragment")
    output.say(
        f"copied {output.count(records, 'record')} of {redact(copied.source)} "
        f"to {redact(copied.url)}: {what} ({output.size(copied.num_bytes)})"
    )
    output.say(f"they begin at offset {copied.first_offset} and add up to what the source has")
