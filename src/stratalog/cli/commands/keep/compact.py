"""`compact`: drop the records that no longer live, as a key, a query on Spark or a file says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.commands.herd.pipeline import Conf, Interval, Master, Remote, settings_of
from stratalog.cli.parameters import AsJson, Url, Verbose, grace_s, logged

if TYPE_CHECKING:
    from stratalog.indexset import IndexSet
    from stratalog.objectlog import CompactOptions
    from stratalog.objectlog.compaction import Compacted, OnProgress
    from stratalog.pipeline.compact import ByKey, CompactedLog


def compact(
    url: Url,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="What lives: the last record of each key, an expression over offset, timestamp "
            "and body. Runs on Spark, and reads what is new since the last run.",
        ),
    ] = None,
    tombstone: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="With --key: which records mean that their key is gone.",
        ),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(
            parser=grace_s,
            metavar="DURATION",
            help="How long a tombstone lives: 90s, 6h, 7d, or seconds. Default: a day.",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="With --key: read the whole log, whatever the last run has left."
        ),
    ] = False,
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
    Pins and forks go on to read what they read before. With --key, an index
    under live/ tells the next run what this one has seen.

    Examples:
      stratalog compact settings --key "get_json_object(string(body), '$.key')"
        --tombstone "get_json_object(string(body), '$.value') IS NULL"
      stratalog compact settings --live "SELECT max(offset) FROM log GROUP BY
        get_json_object(string(body), '$.key')"
      stratalog compact settings --live-file live.json --up-to 5000
    """
    if [key, live, live_file].count(None) != 2:
        raise typer.BadParameter("give one of --key, --live and --live-file: they say what lives")
    _check_options_of_key(key, tombstone, grace, full)
    if live_file is not None and up_to is None:
        raise typer.BadParameter("--live-file needs --up-to: where its owner stopped reading")
    from stratalog.objectlog import CompactOptions

    options = CompactOptions(live_share_min=live_share_min, interval_s=interval)
    with (
        logged(verbose),
        output.progress("compacting", None, unit="fragments", shown=not as_json) as advance,
    ):

        def tell(done: int, _: int) -> None:
            advance(done)

        done: Compacted | CompactedLog
        if live_file is not None:
            assert up_to is not None
            done = _by_set(url, loaded(live_file), up_to, tell, options)
        else:
            check_there(url)  # Spark takes its time to start
            from stratalog.pipeline.session import require_pyspark, session

            require_pyspark()
            from stratalog.pipeline import compact_by_key, compact_log

            with session(master=master, remote=remote, conf=settings_of(conf)) as spark:
                if key is None:
                    assert live is not None
                    done = compact_log(
                        spark, url, live, up_to=up_to, on_progress=tell, options=options
                    )
                else:
                    done = compact_by_key(
                        spark,
                        url,
                        _rule(key, tombstone, grace),
                        up_to=up_to,
                        incremental=not full,
                        on_progress=tell,
                        options=options,
                    )
    _tell(done, as_json)


def _check_options_of_key(
    key: str | None, tombstone: str | None, grace: float | None, full: bool
) -> None:
    if key is None and (tombstone is not None or grace is not None or full):
        raise typer.BadParameter("--tombstone, --grace and --full belong to --key")
    if grace is not None and tombstone is None:
        raise typer.BadParameter("--grace is how long a --tombstone lives")


def check_there(url: str) -> None:
    from stratalog import sync

    with sync.LogReader.open(url):
        pass


def _by_set(
    url: str, live: IndexSet, up_to: int, on_progress: OnProgress, options: CompactOptions
) -> Compacted:
    from stratalog import sync

    return sync.compact(url, live, up_to=up_to, on_progress=on_progress, options=options)


def _rule(key: str, tombstone: str | None, grace_s: float | None) -> ByKey:
    from stratalog.pipeline.compact import GRACE_S, ByKey

    return ByKey(key, tombstone, GRACE_S if grace_s is None else grace_s)


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


def _tell(done: Compacted | CompactedLog, as_json: bool) -> None:
    if as_json:
        output.write_json(_facts(done))
        return
    read = _read(done)
    if not done.fragments:
        output.say(f"nothing to drop{read}")
        return
    output.say(
        f"dropped {output.count(done.records, 'record')}: "
        f"{output.count(done.fragments, 'fragment')} became "
        f"{done.rewritten:,} ({output.size(done.bytes_before)} → {output.size(done.bytes_after)})"
        f"{read}"
    )


def _facts(done: Compacted | CompactedLog) -> dict[str, object]:
    from stratalog.objectlog.compaction import Compacted

    facts: dict[str, object] = {
        "up_to": done.up_to,
        "records": done.records,
        "fragments": done.fragments,
        "rewritten": done.rewritten,
        "bytes_before": done.bytes_before,
        "bytes_after": done.bytes_after,
    }
    if isinstance(done, Compacted):
        objects = done.removed.fragments + done.removed.snapshots
        return {**facts, "setsum": done.setsum.hexdigest(), "objects_deleted": objects}
    return {**facts, "read": done.read, "live": done.live, "objects_deleted": done.objects}


def _read(done: Compacted | CompactedLog) -> str:
    """What a run by key has read, for people."""
    from stratalog.objectlog.compaction import Compacted

    if isinstance(done, Compacted):
        return ""
    return f"; {output.count(done.read, 'record')} read, {done.live:,} live"
