"""`policy`: what the pipeline keeps of a log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import exits, output
from stratalog.cli.help import Group
from stratalog.cli.parameters import AsJson, Verbose, duration_s, lasting, run, size_bytes
from stratalog.errors import Invalid, NotFound, NotHappened, StratalogError
from stratalog.store import redact

if TYPE_CHECKING:
    from stratalog.objectlog import Policy
    from stratalog.store import Store

LOGS_AT_ONCE = 32
SHOWN_MAX = 20

Place = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        callback=lasting,
        help="The log: a directory, or file://, s3://, gs:// or az://. With --log, the herd.",
    ),
]
Logs = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="NAME",
        help="In a herd: the log of this name, or all that fit, as in orders-*. May be repeated.",
    ),
]

policies = typer.Typer(
    cls=Group,
    name="policy",
    no_args_is_help=True,
    help="What the pipeline keeps of a log: what lives, for how long, how much.",
)


@policies.command("get")
def get_policy(
    url: Place, logs: Logs = None, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """Show the policy of a log, or of logs of a herd.

    Examples:
      stratalog policy get settings-log
      stratalog policy get s3://bucket/shop --log 'orders-*' --json
    """
    from stratalog.objectlog import PolicyStore

    async def load(store: Store) -> Policy | None:
        try:
            return await PolicyStore(store).load()
        except NotFound as error:
            if logs is None:
                raise await _told_why(store, error) from None
            return None

    done = _for_each(url, logs, load, verbose=verbose)
    if as_json:
        facts = [_facts(each.policy, each.name) for each in done if not each.error]
        output.write_json(facts if logs is not None else facts[0])
    elif logs is None:
        for line in _lines(done[0].policy):
            output.say(line)
    else:
        _draw(done)
    _end(done)


@policies.command("set")
def set_policy(
    url: Place,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="The last record of each key lives: an expression over body, offset, timestamp.",
        ),
    ] = None,
    tombstone: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="With --key: whether a record says that its key is gone."),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(
            parser=duration_s,
            metavar="DURATION",
            help="With --tombstone: how long it lives.",
            show_default="1d",
        ),
    ] = None,
    live: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="What lives: a query over the view log (offset, timestamp, body) "
            "that gives offsets.",
        ),
    ] = None,
    retain_age: Annotated[
        float | None,
        typer.Option(
            parser=duration_s, metavar="DURATION", help="What is older goes, as in 30d or 12h."
        ),
    ] = None,
    retain_bytes: Annotated[
        int | None,
        typer.Option(
            parser=size_bytes,
            metavar="SIZE",
            help="The oldest go until the rest is no more than this, as in 10GiB.",
        ),
    ] = None,
    live_share_min: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Rewrite fragments of which less than this lives; 1 drops every dead record.",
            show_default="0.5",
        ),
    ] = None,
    new_records_min: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Do not ask again what lives before so many records have come.",
            show_default="1; 0 with --tombstone",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False, help="All of it, as JSON. See `get`."
        ),
    ] = None,
    logs: Logs = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Say what `stratalog pipeline run` keeps of a log.

    It takes the place of the policy before it: what is not said is not done.
    Everything that is still in the log is held by the cursor `policy` from now on,
    until retention moves it. Nothing is deleted that another cursor needs.

    Examples:
      stratalog policy set settings-log --key "get_json_object(string(body), '$.key')"
      stratalog policy set s3://bucket/shop --log 'clicks-*' --retain-age 30d
      stratalog policy set events --retain-bytes 10GiB --retain-age 12w
      stratalog policy set settings-log --file policy.json
    """
    from stratalog.objectlog import PolicyStore

    options = (key, tombstone, grace, live, retain_age, retain_bytes)
    given = [each for each in (*options, live_share_min, new_records_min) if each is not None]
    if file is not None:
        if given:
            raise typer.BadParameter("--file says all of it: leave the other options out")
        policy = _from_file(file)
    else:
        policy = _from_options(*options, live_share_min, new_records_min)

    async def put(store: Store) -> Policy | None:
        return await PolicyStore(store).set(policy)

    done = _for_each(url, logs, put, verbose=verbose)
    if as_json:
        names = {} if logs is None else {"logs": [each.name for each in done if not each.error]}
        output.write_json({"done": "set", "policy": policy.to_dict(), **names})
    else:
        count = sum(each.error is None for each in done)
        where = "the policy" if logs is None else f"the policy of {output.count(count, 'log')}"
        output.say(f"set {where}")
        for line in _rules(policy):
            output.say(f"  {line}")
    _end(done)


@policies.command("remove")
def remove_policy(
    url: Place, logs: Logs = None, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """Remove the policy of a log, and the cursor that held what it kept.

    What was held may then be collected up to the lowest of the other cursors.

    Example:
      stratalog policy remove settings-log
    """
    from stratalog.objectlog import PolicyStore

    async def remove(store: Store) -> None:
        try:
            await PolicyStore(store).remove()
        except NotFound:
            if logs is None:
                raise

    done = _for_each(url, logs, remove, verbose=verbose)
    if as_json:
        names = {} if logs is None else {"logs": [each.name for each in done if not each.error]}
        output.write_json({"done": "removed", **names})
    else:
        count = output.count(sum(each.error is None for each in done), "log")
        output.say("removed the policy" if logs is None else f"{count} without a policy now")
    _end(done)


# What is asked for


def _from_options(
    key: str | None,
    tombstone: str | None,
    grace_s: float | None,
    live: str | None,
    age_s: float | None,
    num_bytes: int | None,
    live_share_min: float | None,
    new_records_min: int | None,
) -> Policy:
    from stratalog.objectlog import Live, Policy, Retention, Thresholds

    rules = (key, tombstone, grace_s, live)
    has_thresholds = live_share_min is not None or new_records_min is not None
    policy = Policy(
        live=None
        if all(each is None for each in rules)
        else Live(key=key, tombstone=tombstone, grace_s=grace_s, sql=live),
        retain=None
        if age_s is None and num_bytes is None
        else Retention(age_s=age_s, bytes=num_bytes),
        thresholds=Thresholds(live_share_min=live_share_min, new_records_min=new_records_min)
        if has_thresholds
        else None,
    )
    policy.check_useful()
    return policy


def _from_file(file: Path) -> Policy:
    from stratalog.objectlog import Policy

    try:
        return Policy.from_text(file.read_bytes())
    except Invalid as error:
        raise Invalid(f"{file}: {error}", hint=error.hint) from None


# The logs


@dataclass(frozen=True, slots=True)
class _Done:
    """What became of one log."""

    name: str | None
    policy: Policy | None = None
    error: StratalogError | None = None


def _for_each(
    url: str,
    patterns: Sequence[str] | None,
    work: Callable[[Store], Awaitable[Policy | None]],
    *,
    verbose: bool,
) -> list[_Done]:
    """Do it to the log at this place, whose error is the command's; or to some of a herd."""
    if patterns is None:
        from stratalog.store import open_store

        async def alone() -> list[_Done]:
            return [_Done(None, await work(open_store(url)))]

        return run(alone(), verbose=verbose)
    return run(_in_a_herd(url, patterns, work), verbose=verbose)


async def _in_a_herd(
    root: str, patterns: Sequence[str], work: Callable[[Store], Awaitable[Policy | None]]
) -> list[_Done]:
    from stratalog.herd import Herd

    room = asyncio.Semaphore(LOGS_AT_ONCE)
    async with Herd.open(root) as herd:
        names = [
            name
            async for name in herd.names()
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        ]
        if not names:
            raise NotFound(
                f"the herd has no log like {', '.join(patterns)}",
                hint="See `stratalog herd list`.",
            )

        async def one(name: str) -> _Done:
            async with room:
                try:
                    return _Done(name, await work(await herd.log(name).store()))
                except StratalogError as error:
                    return _Done(name, error=error)

        return [*await asyncio.gather(*map(one, names))]


async def _told_why(store: Store, error: NotFound) -> NotFound:
    """Why there is no policy: no log, or half a change of one that was cut short."""
    from stratalog.objectlog import CursorStore
    from stratalog.objectlog.stored import POLICY_CURSOR, load_manifest

    await load_manifest(store)
    try:
        cursor = await CursorStore(store).load(POLICY_CURSOR)
    except NotFound:
        return error
    return NotFound(
        f"there is no policy, but its cursor holds the log from {cursor.offset} on",
        path=error.path,
        hint="Set one, or let go with `stratalog policy remove`.",
    )


# Telling


def _facts(policy: Policy | None, name: str | None) -> dict[str, object]:
    return {
        **({} if name is None else {"log": name}),
        "policy": None if policy is None else policy.to_dict(),
        "judged": None if policy is None else policy.judged,
        "epoch_us": None if policy is None else policy.epoch_us,
        "writer": None if policy is None else policy.writer,
    }


def _lines(policy: Policy | None) -> list[str]:
    assert policy is not None
    lines = _rules(policy)
    if policy.live is not None:
        judged = "not asked yet" if policy.judged is None else f"asked up to {policy.judged:,}"
        lines.append(f"{'state':<10}{judged}")
    if policy.epoch_us is not None:
        lines.append(f"{'set':<10}{output.moment(policy.epoch_us)} by {policy.writer}")
    return lines


def _rules(policy: Policy) -> list[str]:
    """What it says, a line for each rule."""
    lines: list[str] = []
    live, retain = policy.live, policy.retain
    if live is not None and live.key is not None:
        lines.append(f"{'live':<10}the last record of each {live.key}")
        if live.tombstone is not None:
            grace = "a day" if live.grace_s is None else f"{live.grace_s:,.0f} s"
            lines.append(f"{'':<10}a tombstone ({live.tombstone}) for {grace}")
    elif live is not None and live.sql is not None:
        lines.append(f"{'live':<10}{live.sql}")
    elif live is not None:
        lines.append(f"{'live':<10}by a rule of a newer version")
    if retain is not None:
        parts = [] if retain.age_s is None else [f"{_lasting(retain.age_s)}"]
        parts += [] if retain.bytes is None else [f"at most {output.size(retain.bytes)}"]
        lines.append(f"{'retain':<10}{', '.join(parts)}")
    if live is not None:
        lines.append(
            f"{'when':<10}less than {policy.live_share_min:g} of a fragment lives, "
            f"{output.count(policy.new_records_min, 'new record')} or more"
        )
    return lines


def _lasting(seconds: float) -> str:
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            return output.count(int(seconds // size), unit)
    return f"{seconds:g} seconds"


def _draw(done: Sequence[_Done]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("log", "policy"):
        table.add_column(title, overflow="fold")
    for each in done:
        if each.error is None:
            told = "-" if each.policy is None else "\n".join(_rules(each.policy))
            table.add_row(each.name or "", told)
    output.draw(table)


def _end(done: Sequence[_Done]) -> None:
    """Tell of the logs that failed. They are not among the results."""
    failed = [each for each in done if each.error is not None]
    if not failed:
        return
    for each in failed[:SHOWN_MAX]:
        assert each.error is not None
        output.complain("warning", "yellow", redact(f"the log {each.name}: {each.error}"))
    if len(failed) > SHOWN_MAX:
        output.complain("warning", "yellow", f"and {len(failed) - SHOWN_MAX:,} more")
    raise typer.Exit(exits.exit_code(NotHappened("")))
