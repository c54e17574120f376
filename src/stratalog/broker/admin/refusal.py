"""What an error code of the broker means to a caller of ours, and what to do next."""

from kio.schema.errors import ErrorCode

from stratalog.errors import (
    Conflict,
    Corrupt,
    Denied,
    Exists,
    Full,
    Invalid,
    NotFound,
    StratalogError,
    Trimmed,
    Unavailable,
    Unknown,
)

_MEANINGS: dict[ErrorCode, tuple[type[StratalogError], str, str]] = {
    ErrorCode.unknown_topic_or_partition: (
        NotFound,
        "there is no such topic or partition",
        "`stratalog topics list` shows the topics.",
    ),
    ErrorCode.group_id_not_found: (
        NotFound,
        "there is no such group",
        "`stratalog groups list` shows the groups.",
    ),
    ErrorCode.topic_already_exists: (
        Exists,
        "there is already a topic of this name",
        "Choose another name, or change it with `stratalog topics alter`.",
    ),
    ErrorCode.non_empty_group: (
        Conflict,
        "the group has members",
        "Stop its consumers, wait until they have left, then try again.",
    ),
    ErrorCode.group_subscribed_to_topic: (
        Conflict,
        "members of the group read this topic",
        "Stop its consumers, wait until they have left, then try again.",
    ),
    ErrorCode.unknown_member_id: (
        Conflict,
        "the group has members",
        "Stop its consumers, wait until they have left, then try again.",
    ),
    ErrorCode.rebalance_in_progress: (
        Conflict,
        "the group is just dividing its partitions anew",
        "Try again in a few seconds.",
    ),
    ErrorCode.offset_out_of_range: (
        Trimmed,
        "the offset is not in the partition",
        "`stratalog topics describe` shows where it begins and ends.",
    ),
    ErrorCode.request_timed_out: (
        Unknown,
        "the broker did not finish in time",
        "Look whether it happened before you repeat it.",
    ),
    ErrorCode.corrupt_message: (Corrupt, "stored bytes are wrong", "Look at the broker's log."),
    ErrorCode.kafka_storage_error: (
        Unavailable,
        "the broker cannot use its disk",
        "Look at the broker's log, and at the space on its disk.",
    ),
    ErrorCode.policy_violation: (Full, "the broker's limits forbid it", "See docs/limits.md."),
}

_SAY_IT_ALL = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.topic_already_exists})
"""The broker's own words would only repeat what the code means."""

_DENIED = frozenset(
    {
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.topic_deletion_disabled,
    }
)


def refusal(code: ErrorCode, about: str, message: str | None = None) -> StratalogError:
    """The error for a code that is not ``none``. ``message`` is what the broker says itself."""
    kind, meaning, hint = _MEANINGS.get(code, (_kind(code), code.name.replace("_", " "), ""))
    told = None if code in _SAY_IT_ALL else message
    text = f"{about}: {told or meaning}"
    return kind(text, hint=hint) if hint else kind(text)


def check(code: ErrorCode, about: str, message: str | None = None) -> None:
    """Raise what the code means, unless it is ``none``."""
    if code is not ErrorCode.none:
        raise refusal(code, about, message)


def _kind(code: ErrorCode) -> type[StratalogError]:
    if code in _DENIED:
        return Denied
    if code is ErrorCode.unknown_server_error:
        return StratalogError
    return Unavailable if code.retriable else Invalid
