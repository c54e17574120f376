"""Why a change of the catalogue is refused: each fact with Kafka's code and words for it."""

from kio.schema.errors import ErrorCode

from stratalog.broker.wire import Refused


def topic_exists(name: str) -> Refused:
    return Refused(
        ErrorCode.topic_already_exists,
        f"Topic '{name}' already exists.",
        hint="Choose another name, or use the topic that is there.",
    )


def unknown_topic(name: str) -> Refused:
    return Refused(
        ErrorCode.unknown_topic_or_partition,
        f"There is no topic '{name}'.",
        hint="`stratalog topics list` names all topics.",
    )


def collides(name: str, other: str) -> Refused:
    return Refused(
        ErrorCode.invalid_topic_exception,
        f"Topic '{name}' collides with existing topic: {other}",
        hint="Choose a name that differs in more than '.' and '_'.",
    )


def no_more_partitions(name: str, now: int) -> Refused:
    return Refused(
        ErrorCode.invalid_partitions,
        f"Topic already has {now} partition(s).",
        hint=f"Ask for more than {now} partitions of {name}.",
    )


def not_above(name: str, now: int, wanted: int) -> Refused:
    return Refused(
        ErrorCode.invalid_partitions,
        f"The topic {name} currently has {now} partition(s); {wanted} would not be an increase.",
        hint="Partitions are only added. To have fewer, make a new topic.",
    )


def too_many_partitions(now: int, further: int, most: int) -> Refused:
    return Refused(
        ErrorCode.policy_violation,
        f"{further} more partitions beside the {now} that there are exceed the limit of {most}.",
        hint="Delete topics that are not used.",
    )


def shutting_down() -> Refused:
    return Refused(
        ErrorCode.not_controller, "The broker is shutting down.", hint="Try again when it is up."
    )
