"""`topics`: the topics of a broker, over the wire that every Kafka client speaks."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.commands.broker.bootstrap import Bootstrap
from stratalog.cli.confirm import confirm, require_terminal
from stratalog.cli.groups import Commands
from stratalog.cli.parameters import Yes
from stratalog.cli.reply import Reply
from stratalog.errors import Invalid

if TYPE_CHECKING:
    from stratalog.broker.admin import TopicDescription, TopicSummary

Topic = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Up to 249 letters, digits, dots, underscores, hyphens."),
]
Partitions = Annotated[
    int | None,
    typer.Option("--partitions", metavar="N", min=1, help="How many partitions it has."),
]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="A setting, as Kafka calls it. Repeatable."),
]
Unset = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="KEY", help="Give a setting back to the default. Repeatable."),
]

topics = Commands("topics", help="The topics of a broker: create, look at, change, delete.")


@topics.command("list")
def list_all(*, broker: Bootstrap, reply: Reply) -> None:
    """Show all topics.

    Examples:
      stratalog topics list
      stratalog topics list --bootstrap broker-1:9092 --json | jq -r '.[].name'
    """

    async def work() -> list[TopicSummary]:
        from stratalog.broker.admin import connect, list_topics

        async with connect(broker.bootstrap, timeout_s=broker.timeout) as connection:
            return await list_topics(connection)

    reply.listing(
        reply.run(work()),
        asdict,
        lambda topic: (topic.name, f"{topic.partitions:,}", topic.id),
        columns=("topic", "partitions", "id"),
        right=("partitions",),
        empty="there is no topic",
    )


@topics.command("create")
def create(
    name: Topic,
    *,
    partitions: Partitions = None,
    config: Config = None,
    broker: Bootstrap,
    reply: Reply,
) -> None:
    """Create a topic.

    Without --partitions the broker decides (`default_partitions`). The settings
    are Kafka's; docs/guide/coming-from-kafka.md says what each means here.

    Examples:
      stratalog topics create orders --partitions 12
      stratalog topics create clicks --config retention.ms=3600000
    """
    settings = _settings(config or [])

    async def work() -> TopicSummary:
        from stratalog.broker.admin import connect, create_topic

        async with connect(broker.bootstrap, timeout_s=broker.timeout) as connection:
            return await create_topic(connection, name, partitions, settings)

    made = reply.run(work())
    reply.done(
        asdict(made),
        f"created the topic {made.name} with {output.count(made.partitions, 'partition')}",
    )


@topics.command("describe")
def describe(name: Topic, *, broker: Bootstrap, reply: Reply) -> None:
    """Show a topic: where its partitions begin and end, and its settings.

    The end is the offset that the next record gets. A setting without a mark is
    the broker's default.

    Examples:
      stratalog topics describe orders
      stratalog topics describe orders --json | jq '[.partitions[] | .end - .start] | add'
    """

    async def work() -> TopicDescription:
        from stratalog.broker.admin import connect, describe_topic

        async with connect(broker.bootstrap, timeout_s=broker.timeout) as connection:
            return await describe_topic(connection, name)

    reply.result(reply.run(work()), asdict, _show)


@topics.command("alter")
def alter(
    name: Topic,
    *,
    partitions: Partitions = None,
    config: Config = None,
    unset: Unset = None,
    broker: Bootstrap,
    reply: Reply,
) -> None:
    """Change the settings of a topic, or give it more partitions.

    Records stay where they are. Keys may map to other partitions once there are
    more of them, and there is no way back to fewer.

    Examples:
      stratalog topics alter orders --config retention.bytes=1073741824
      stratalog topics alter orders --unset retention.bytes
      stratalog topics alter orders --partitions 24
    """
    settings, defaults = _settings(config or []), unset or []
    if not settings and not defaults and partitions is None:
        raise Invalid(
            "nothing to change was named",
            hint="Add --config KEY=VALUE, --unset KEY or --partitions N.",
        )

    async def work() -> None:
        from stratalog.broker.admin import add_partitions, alter_settings, connect

        async with connect(broker.bootstrap, timeout_s=broker.timeout) as connection:
            if settings or defaults:
                await alter_settings(connection, name, settings, defaults)
            if partitions is not None:
                await add_partitions(connection, name, partitions)

    reply.run(work())
    facts = {"name": name, "set": settings, "unset": defaults, "partitions": partitions}
    reply.done(facts, f"changed the topic {name}")


@topics.command("delete")
def delete(name: Topic, *, yes: Yes = False, broker: Bootstrap, reply: Reply) -> None:
    """Delete a topic with all of its records. There is no way back.

    A topic that is created anew under the name begins empty. Offsets that groups
    have committed for it go too.

    Examples:
      stratalog topics delete orders
      stratalog topics delete orders --yes
    """
    if not yes:
        require_terminal("the deletion of a topic was not confirmed")
        confirm(name, purpose="delete this topic", otherwise=f"the topic {name} was not deleted")

    async def work() -> None:
        from stratalog.broker.admin import connect, delete_topic

        async with connect(broker.bootstrap, timeout_s=broker.timeout) as connection:
            await delete_topic(connection, name)

    reply.run(work())
    reply.done({"name": name, "deleted": True}, f"deleted the topic {name}")


def _settings(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{pair!r} is no setting like retention.ms=3600000")
        found[key.strip()] = value.strip()
    return found


def _show(topic: TopicDescription) -> None:
    records = sum(each.end - each.start for each in topic.partitions)
    output.say(
        f"{topic.name}: {output.count(len(topic.partitions), 'partition')}, "
        f"{output.count(records, 'offset')}, id {topic.id}"
    )
    columns = ("partition", "leader", "epoch", "start", "end", "size")
    table = output.table(*columns, right=columns)
    for each in topic.partitions:
        table.add_row(
            f"{each.partition}",
            f"{each.leader}",
            f"{each.leader_epoch}",
            f"{each.start:,}",
            f"{each.end:,}",
            "-" if each.size_bytes is None else output.size(each.size_bytes),
        )
    output.draw(table)
    output.say("")
    settings = output.table("setting", "value", "")
    for setting in topic.settings:
        value = "-" if setting.value is None else setting.value
        settings.add_row(setting.name, value, "" if setting.is_default else "set for this topic")
    output.draw(settings)
