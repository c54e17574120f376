"""`policy`: what the pipeline keeps of a log."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from stratalog.cli import exits, output
from stratalog.cli.commands.keep.compact import check_there
from stratalog.cli.groups import Commands, option
from stratalog.cli.parameters import DURATION, FILE_TO_READ, PLACE, place
from stratalog.cli.reply import Reply
from stratalog.cli.values import decoded, size_bytes
from stratalog.errors import NotFound, StratalogError
from stratalog.ordered import gather_bounded
from stratalog.store import Store, open_store

if TYPE_CHECKING:
    from stratalog.objectlog import Policy

T = TypeVar("T")

LOGS_AT_ONCE = 32

Place = Annotated[str, place("URL", f"The log: {PLACE} With --log, the herd.")]
Logs = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="NAME",
        help="In a herd: the log of this name, or all that fit, as in orders-*. May be repeated.",
    ),
]

policies = Commands(
    "policy",
    help="What the pipeline keeps of a log: what lives, for how long, how much.",
)


@dataclass(frozen=True, slots=True)
class Rules:
    key: str | None = option(
        "The last record of each key lives: an expression over body, offset, timestamp.",
        metavar="SQL",
    )
    tombstone: str | None = option(
        "With --key: whether a record says that its key is gone.", metavar="SQL"
    )
    grace: float | None = option(
        "With --tombstone: how long it lives.", show_default="1d", **DURATION
    )
    live: str | None = option(
        "What lives: a query over the view log (offset, timestamp, body) that gives offsets.",
        metavar="SQL",
    )
    retain_age: float | None = option("What is older goes, as in 30d or 12h.", **DURATION)
    retain_bytes: int | None = option(
        "The oldest go until the rest is no more than this, as in 10GiB.",
        parser=size_bytes,
        metavar="SIZE",
    )
    live_share_min: float | None = option(
        "Rewrite fragments of which less than this lives; 1 drops every dead record.",
        metavar="SHARE",
        show_default="0.5",
    )
    new_records_min: int | None = option(
        "Do not ask again what lives before so many records have come.",
        metavar="N",
        min=0,
        show_default="1; 0 with --tombstone",
    )

    def policy(self) -> Policy:
        from stratalog.objectlog import Live, Policy, Retention, Thresholds

        live = _unless_empty(
            Live, key=self.key, tombstone=self.tombstone, grace_s=self.grace, sql=self.live
        )
        retain = _unless_empty(Retention, age_s=self.retain_age, bytes=self.retain_bytes)
        thresholds = _unless_empty(
            Thresholds, live_share_min=self.live_share_min, new_records_min=self.new_records_min
        )
        policy = Policy(live=live, retain=retain, thresholds=thresholds)
        policy.check_useful()
        return policy


def _unless_empty(rule: Callable[..., T], **facts: object) -> T | None:
    return None if all(each is None for each in facts.values()) else rule(**facts)


@policies.command("get")
def get_policy(url: Place, logs: Logs = None, *, reply: Reply) -> None:
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
                raise await _why_none(store, error) from None
            return None

    done = _for_each(url, logs, load, reply)
    if logs is None:
        reply.result(done[0], _facts, lambda alone: output.say_all(_lines(alone.policy)))
    else:
        done_well = [each for each in done if each.error is None]
        reply.result(done_well, lambda done: [_facts(each) for each in done], _draw)
    _end(done)


@policies.command("set")
def set_policy(
    url: Place,
    *,
    rules: Rules,
    file: Path | None = option("All of it, as JSON. See `get`.", **FILE_TO_READ),
    check: bool = option(
        "Ask Spark, if it is installed, whether the SQL is right and allowed.",
        "--check/--no-check",
        default=True,
    ),
    logs: Logs = None,
    reply: Reply,
) -> None:
    """Say what `stratalog pipeline run` keeps of a log.

    It takes the place of the policy before it: what is not said is not done.
    Everything that is still in the log is held by the cursor `policy` from now on,
    until retention moves it. Nothing is deleted that another cursor needs.

    SQL may compute with the records, and nothing else: a run refuses the rest
    unless it was told to trust policies. Where Spark is installed, it is
    refused here already.

    Examples:
      stratalog policy set settings-log --key "get_json_object(string(body), '$.key')"
      stratalog policy set s3://bucket/shop --log 'clicks-*' --retain-age 30d
      stratalog policy set events --retain-bytes 10GiB --retain-age 12w
      stratalog policy set settings-log --file policy.json
    """
    from stratalog.objectlog import Policy, PolicyStore

    if file is None:
        policy = rules.policy()
    elif rules != Rules():
        raise typer.BadParameter("--file says all of it: leave the other options out")
    else:
        policy = decoded(file, Policy.from_text)
    if check:
        _check_sql(policy, None if logs else url, reply)

    async def put(store: Store) -> Policy | None:
        return await PolicyStore(store).set(policy)

    done = _for_each(url, logs, put, reply)
    count = sum(each.error is None for each in done)
    where = "the policy" if logs is None else f"the policy of {output.count(count, 'log')}"
    text = "\n  ".join([f"set {where}", *_rules(policy)])
    reply.done({"done": "set", "policy": policy.to_dict(), **_names(done)}, text)
    _end(done)


def _check_sql(policy: Policy, url: str | None, reply: Reply) -> None:
    """Refuse SQL that is wrong or not allowed, where Spark is there to tell.

    That the log is there comes first: Spark takes its time to start.
    """
    if policy.live is None or (policy.live.key or policy.live.sql) is None:
        return
    from stratalog.pipeline.session import can_run_here, has_session, session

    if not can_run_here():
        return
    if url is not None:
        check_there(url)
    with (
        reply.progress("asking Spark", unit="rules"),
        session(master=None if has_session() else "local[1]") as spark,
    ):
        from stratalog.pipeline import check_policy

        check_policy(spark, policy)


@policies.command("remove")
def remove_policy(url: Place, logs: Logs = None, *, reply: Reply) -> None:
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

    done = _for_each(url, logs, remove, reply)
    count = output.count(sum(each.error is None for each in done), "log")
    text = "removed the policy" if logs is None else f"{count} without a policy now"
    reply.done({"done": "removed", **_names(done)}, text)
    _end(done)


@dataclass(frozen=True, slots=True)
class _Done:
    name: str | None
    policy: Policy | None = None
    error: StratalogError | None = None


def _for_each(
    url: str,
    patterns: Sequence[str] | None,
    work: Callable[[Store], Coroutine[Any, Any, Policy | None]],
    reply: Reply,
) -> list[_Done]:
    """Do it to the log at this place, whose error is the command's; or to some of a herd."""
    if patterns is not None:
        return reply.run(_in_a_herd(url, patterns, work))
    return [_Done(None, reply.run(work(open_store(url))))]


async def _in_a_herd(
    root: str, patterns: Sequence[str], work: Callable[[Store], Coroutine[Any, Any, Policy | None]]
) -> list[_Done]:
    from stratalog.herd import Herd

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
            try:
                return _Done(name, await work(await herd.log(name).store()))
            except StratalogError as error:
                return _Done(name, error=error)

        return await gather_bounded(names, one, LOGS_AT_ONCE)


async def _why_none(store: Store, error: NotFound) -> NotFound:
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
        hint="Set one, or release it with `stratalog policy remove`.",
    )


def _names(done: Sequence[_Done]) -> dict[str, object]:
    """The logs of a herd for which it was done. A log alone has no name."""
    names = [each.name for each in done if each.error is None]
    return {} if names == [None] else {"logs": names}


def _facts(done: _Done) -> dict[str, object]:
    policy = done.policy
    return {
        **({} if done.name is None else {"log": done.name}),
        "policy": None if policy is None else policy.to_dict(),
        "judged": None if policy is None else policy.judged,
        "epoch_us": None if policy is None else policy.epoch_us,
        "writer": None if policy is None else policy.writer,
    }


def _draw(done: Sequence[_Done]) -> None:
    table = output.table("log", "policy", fold=("log", "policy"))
    for each in done:
        rules = "-" if each.policy is None else "\n".join(_rules(each.policy))
        table.add_row(each.name or "", rules)
    output.draw(table)


def _end(done: Sequence[_Done]) -> None:
    """Warn of the logs that failed. They are not among the results."""
    failed = [f"the log {each.name}: {each.error}" for each in done if each.error is not None]
    output.warn_of(failed)
    exits.end(is_damaged=False, is_partial=bool(failed))


def _lines(policy: Policy | None) -> list[str]:
    """What it says, and how far it has been applied."""
    assert policy is not None
    text = _rules(policy)
    if policy.live is not None:
        judged = "not asked yet" if policy.judged is None else f"asked up to {policy.judged:,}"
        text.append(f"{'state':<10}{judged}")
    if policy.epoch_us is not None:
        text.append(f"{'set':<10}{output.moment(policy.epoch_us)} by {policy.writer}")
    return text


def _rules(policy: Policy) -> list[str]:
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
