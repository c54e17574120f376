"""What a topic may be called: Kafka's rule.

1 to 249 of ``a-z A-Z 0-9 . _ -``, and neither ``.`` nor ``..``. The rule holds wherever a name
comes in, also where nothing is created: so no name that is not one reaches the disk, a log line or
a page of metrics.

Kafka names its metrics with ``_`` in place of ``.``, so it refuses a topic whose name differs from
another's in nothing else. We refuse it as well, so that a set of topics can move to Kafka and back.
"""

import re

from kio.schema.errors import ErrorCode

from stratalog.broker.wire import Refused

NAME_LENGTH_MAX = 249
SHOWN_LENGTH_MAX = 80
"""A refusal shows no more of a name that may be as long as a request."""

_name = re.compile(r"[a-zA-Z0-9._-]+")


class InvalidTopicName(Refused):
    """No topic can have this name."""

    kind = "invalid-topic-name"
    default_hint = (
        f"A name has 1 to {NAME_LENGTH_MAX} of a-z, A-Z, 0-9, '.', '_' and '-', and is neither "
        "'.' nor '..'."
    )

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_topic_exception, message)


def is_topic_name(name: str) -> bool:
    """Whether a topic can be called this."""
    return (
        len(name) <= NAME_LENGTH_MAX
        and name not in (".", "..")
        and _name.fullmatch(name) is not None
    )


def check_topic_name(name: str) -> str:
    """The name, or ``InvalidTopicName`` with the reason."""
    if is_topic_name(name):
        return name
    if not name:
        reason = "it is empty"
    elif name in (".", ".."):
        reason = "it is '.' or '..'"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"it has {len(name)} characters, more than {NAME_LENGTH_MAX}"
    else:
        reason = "it has characters other than ASCII letters, digits, '.', '_' and '-'"
    raise InvalidTopicName(f"topic name {_shown(name)} is invalid: {reason}")


def without_dots(name: str) -> str:
    """Two names that agree in this collide."""
    return name.replace(".", "_")


def _shown(name: str) -> str:
    """Printable, and not long."""
    return ascii(name if len(name) <= SHOWN_LENGTH_MAX else name[:SHOWN_LENGTH_MAX] + "…")
