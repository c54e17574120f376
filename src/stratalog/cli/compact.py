"""`compact`: drop the records that no longer live, as a query on Spark says, or a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.parameters import AsJson, Url, Verbose, logged
from stratalog.cli.pipelines import Conf, Interval, Master, Remote, settings_of

if TYPE_CHECKING:
    from stratalog.indexset import IndexSet
    from stratalog.objectlog.compacting import Compacted
    from stratalog.objectlog.options import CompactOptions
    from stratalog.objectlog.rewriting import OnProgress


def compact(
    url: Url,
    live: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="What lives: a query over the view log (offset, timestamp, body) "
            "that gives offsets. Runs on Spark.",
        ),
    ] = None,
    live_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="What lives: an IndexSet, in its JSON or its binary form. "
            "Needs --up-to, and no Spark.",
        ),
    ] = None,
    up_to: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET", min=1, help="Judge only records before this one. Default: all."
        ),
    ] = None,
    live_share_min: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Rewrite fragments of which less than this lives; 1 drops every dead record.",
        ),
    ] = 0.5,
    interval: Interval = 5.0,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Drop the records that no longer live. Offsets stay what they are.

    Everything that the query does not name is dead, up to the tail that it has
    seen; what is appended meanwhile stays, and so does the newest fragment.
    Pins and forks go on to read what they read before.

    Examples:
      stratalog compact settings --live "SELECT max(offset) FROM log GROUP BY
        get_json_object(string(body), '$.key')"
      stratalog compact settings --live-file live.json --up-to 5000
    """
    if (live is None) == (live_file is None):
        raise typer.BadParameter("give --live or --live-file: they say what lives")
    if live_file is not None and up_to is None:
        raise typer.BadParameter("--live-file needs --up-to: where its owner stopped reading")
    from stratalog.objectlog.options import CompactOptions

    options = CompactOptions(live_share_min=live_share_min, interval_s=interval)
    with (
        logged(verbose),
        output.progress("compacting", None, unit="fragments", shown=not as_json) as advance,
    ):

        def tell(done: int, _: int) -> None:
            advance(done)

        if live_file is not None:
            assert up_to is not None
            done = _by_set(url, loaded(live_file), up_to, tell, options)
        else:
            check_there(url)  # Spark takes its time to start
            from stratalog.pipeline.log_compact import compact_log
            from stratalog.pipeline.session import session

            assert live is not None
            with session(master=master, remote=remote, conf=settings_of(conf)) as spark:
                done = compact_log(spark, url, live, up_to=up_to, on_progress=tell, options=options)
    _tell(done, as_json)


def check_there(url: str) -> None:
    from stratalog import sync

    with sync.LogReader.open(url):
        pass


def _by_set(
    url: str, live: IndexSet, up_to: int, on_progress: OnProgress, options: CompactOptions
) -> Compacted:
    from stratalog import sync

    return sync.compact(url, live, up_to=up_to, on_progress=on_progress, options=options)


def loaded(file: Path) -> IndexSet:
    import msgspec

    from stratalog.errors import Invalid
    from stratalog.indexset import IndexSet

    data = file.read_bytes()
    if data.startswith(b"IXS1"):
        return IndexSet.from_bytes(data)
    try:
        form = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise Invalid(
            f"{file} is no set of indexes: {error}",
            hint="It is [[start, limit], …], or what IndexSet.to_bytes gives.",
        ) from None
    return IndexSet.from_json(form)


def _tell(done: Compacted, as_json: bool) -> None:
    if as_json:
        output.write_json(
            {
                "up_to": done.up_to,
                "records": done.records,
                "fragments": done.fragments,
                "rewritten": done.rewritten,
                "bytes_before": done.bytes_before,
                "bytes_after": done.bytes_after,
                "setsum": done.setsum.hexdigest(),
                "objects_deleted": done.removed.fragments + done.removed.snapshots,
            }
        )
        return
    if not done.fragments:
        output.say("nothing to drop")
        return
    output.say(
        f"dropped {output.count(done.records, 'record')}: "
        f"{output.count(done.fragments, 'fragment')} became "
        f"{done.rewritten:,} ({output.size(done.bytes_before)} → {output.size(done.bytes_after)})"
    )
