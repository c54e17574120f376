"""`groups`: the consumer groups of a broker, and how far they are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stratalog.cli import output
from stratalog.cli.commands.broker.bootstrap import Bootstrap
from stratalog.cli.confirm import confirm, require_terminal
from stratalog.cli.groups import Commands, option
from stratalog.cli.parameters import DURATION, Yes
from stratalog.cli.reply import Reply
from stratalog.cli.values import time_us
from stratalog.errors import Invalid
from stratalog.runtime import DEFAULT_RUNTIME

if TYPE_CHECKING:
    from stratalog.broker.admin import GroupDescription, GroupSummary, Move, Progress, Target

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The name of the group.")]

groups = Commands("groups", help="The consumer groups of a broker: who reads, and how far it is.")


@groups.command("list")
def list_all(*, broker: Bootstrap, reply: Reply) -> None:
    """Show all groups with their states.

    Examples:
      stratalog groups list
      stratalog groups list --json | jq -r '.[] | select(.state == "Empty") | .group'
    """

    async def work() -> list[GroupSummary]:
        from stratalog.broker.admin import connect, list_groups

        async with connect(broker.bootstrap, timeout_s=broker.timeout) as connection:
            return await list_groups(connection)

    reply.listing(
        reply.run(work()),
        asdict,
        lambda group: (group.group, group.state, group.protocol_type or "-"),
        columns=("group", "state", "type"),
        right=(),
        empty="there is no group",
    )


@groups.command("describe")
def describe(group: Group, *, broker: Bootstrap, reply: Reply) -> None:
    """Show the members of a group, what each reads, and how far the group is.

    The lag is the number of offsets between what is committed and the end.

    Examples:
      stratalog groups describe billing
      stratalog groups describe billing --json | jq '[.progress[].lag] | add'
    """

    async def work() -> GroupDescription:
        from stratalog.broker.admin import connect, describe_group

        async with connect(broker.bootstrap, timeout_s=broker.timeout) as connection:
            return await describe_group(connection, group)

    reply.result(reply.run(work()), _facts, _show)


@dataclass(frozen=True, slots=True)
class Position:
    """Where the group shall go on: one of these."""

    to_earliest: bool = option("The first record that is there.", default=False)
    to_latest: bool = option("The end: only what comes from now on.", default=False)
    to_offset: int | None = option("This offset.", metavar="N", min=0)
    to_datetime: int | None = option(
        "The first record at or after this time: ISO, or microseconds since 1970.",
        metavar="TIME",
        parser=time_us,
    )
    by_duration: float | None = option("The first record of the last so long.", **DURATION)
    shift_by: int | None = option(
        "So many on from what is committed; back if below 0.", metavar="N"
    )

    def target(self) -> Target:
        from stratalog.broker.admin import Target, Where

        now_ms = DEFAULT_RUNTIME.now_us() // 1000
        found = [
            target
            for is_given, target in (
                (self.to_earliest, Target(Where.EARLIEST)),
                (self.to_latest, Target(Where.LATEST)),
                (self.to_offset is not None, Target(Where.OFFSET, self.to_offset or 0)),
                (self.to_datetime is not None, Target(Where.TIME, (self.to_datetime or 0) // 1000)),
                (
                    self.by_duration is not None,
                    Target(Where.TIME, now_ms - int(1000 * (self.by_duration or 0))),
                ),
                (self.shift_by is not None, Target(Where.SHIFT, self.shift_by or 0)),
            )
            if is_given
        ]
        if len(found) != 1:
            raise Invalid(
                "say with one option where the group shall go on",
                hint="--to-earliest, --to-latest, --to-offset N, --to-datetime TIME, --by-duration "
                "DURATION or --shift-by N.",
            )
        return found[0]


@groups.command("reset-offsets")
def reset_offsets(
    group: Group,
    *,
    topic: Annotated[str, typer.Option("--topic", metavar="NAME", help="The topic.")],
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", metavar="N", min=0, help="Only this one; else all. Repeatable."
        ),
    ] = None,
    position: Position,
    do_it: Annotated[
        bool, typer.Option("--execute", help="Do it. Without it, only show what would happen.")
    ] = False,
    broker: Bootstrap,
    reply: Reply,
) -> None:
    """Move what a group has committed for a topic, to read again or to skip.

    Changes nothing without --execute. The group must have no members then. An
    offset outside of the partition becomes the nearest one inside.

    Examples:
      stratalog groups reset-offsets bills --topic orders --to-earliest
      stratalog groups reset-offsets bills --topic orders --by-duration 2h
      stratalog groups reset-offsets bills --topic orders --shift-by -10 \\
        --partition 3 --execute
    """
    target = position.target()

    async def work() -> list[Move]:
        from stratalog.broker.admin import connect, execute, plan

        async with connect(broker.bootstrap, timeout_s=broker.timeout) as connection:
            moves = await plan(connection, group, topic, partition or [], target)
            if do_it:
                await execute(connection, group, moves)
            return moves

    moves = reply.run(work())
    reply.result(
        moves,
        lambda moves: {
            "group": group,
            "executed": do_it,
            "moves": [asdict(move) for move in moves],
        },
        lambda moves: _show_moves(moves, executed=do_it),
    )


@groups.command("delete")
def delete(group: Group, *, yes: Yes = False, broker: Bootstrap, reply: Reply) -> None:
    """Delete a group without members, with all that it has committed.

    Its consumers then begin where `auto.offset.reset` tells them.

    Examples:
      stratalog groups delete billing
      stratalog groups delete billing --yes
    """
    if not yes:
        require_terminal("the deletion of a group was not confirmed")
        confirm(group, purpose="delete this group", otherwise=f"the group {group} was not deleted")

    async def work() -> None:
        from stratalog.broker.admin import connect, delete_group

        async with connect(broker.bootstrap, timeout_s=broker.timeout) as connection:
            await delete_group(connection, group)

    reply.run(work())
    reply.done({"group": group, "deleted": True}, f"deleted the group {group}")


def _facts(found: GroupDescription) -> dict[str, Any]:
    return {
        **asdict(found),
        "members": [
            {
                **asdict(member),
                "assigned": [
                    {"topic": name, "partition": number} for name, number in member.assigned
                ],
            }
            for member in found.members
        ],
        "progress": [{**asdict(each), "lag": each.lag} for each in found.progress],
    }


def _show(found: GroupDescription) -> None:
    assignor = f", assigned by {found.assignor}" if found.assignor else ""
    output.say(
        f"{found.group}: {found.state}, {output.count(len(found.members), 'member')}{assignor}"
    )
    if found.members:
        members = output.table("member", "client", "host", "partitions", right=("partitions",))
        for each in found.members:
            name = each.instance or each.member
            members.add_row(name, each.client or "-", each.host, f"{len(each.assigned):,}")
        output.draw(members)
        output.say("")
    if not found.progress:
        output.say("nothing is committed")
        return
    columns = ("topic", "partition", "committed", "end", "lag", "member")
    table = output.table(*columns, right=columns[1:5])
    names = {each.member: each.instance or each.member for each in found.members}
    for place in found.progress:
        table.add_row(*_row(place, names))
    output.draw(table)
    output.say(f"lag of all: {sum(each.lag or 0 for each in found.progress):,}")


def _row(place: Progress, names: dict[str, str]) -> tuple[str, ...]:
    numbers = (place.committed, place.end, place.lag)
    return (
        place.topic,
        f"{place.partition}",
        *("-" if each is None else f"{each:,}" for each in numbers),
        "-" if place.member is None else names.get(place.member, place.member),
    )


def _show_moves(moves: list[Move], *, executed: bool) -> None:
    columns = ("topic", "partition", "committed", "new", "")
    table = output.table(*columns, right=columns[1:4])
    for move in moves:
        table.add_row(
            move.topic,
            f"{move.partition}",
            "-" if move.before is None else f"{move.before:,}",
            f"{move.after:,}",
            "the nearest that is there" if move.clamped else "",
        )
    output.draw(table)
    output.say("done" if executed else "nothing was changed: add --execute to do it")
