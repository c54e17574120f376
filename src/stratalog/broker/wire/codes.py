"""Errors as Kafka numbers them: what a client is told when something fails."""

from kio.schema.errors import ErrorCode

from stratalog.errors import StratalogError


class Refused(StratalogError):
    """A request, or a part of it, is answered with an error code of Kafka."""

    kind = "refused"
    default_hint = "The code says what the client may do about it."

    def __init__(self, code: ErrorCode, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, actual=code.name)
        self.code = code


BY_KIND = {
    "conflict": ErrorCode.not_leader_or_follower,
    "fenced": ErrorCode.not_leader_or_follower,
    "sealed": ErrorCode.not_leader_or_follower,
    "full": ErrorCode.request_timed_out,
    "not-happened": ErrorCode.kafka_storage_error,
    "unknown": ErrorCode.request_timed_out,
    "trimmed": ErrorCode.offset_out_of_range,
    "out-of-range": ErrorCode.offset_out_of_range,
    "unavailable": ErrorCode.kafka_storage_error,
    "not-found": ErrorCode.unknown_topic_or_partition,
    "exists": ErrorCode.topic_already_exists,
    "denied": ErrorCode.cluster_authorization_failed,
    "closed": ErrorCode.not_leader_or_follower,
    "corrupt": ErrorCode.kafka_storage_error,
    "invalid": ErrorCode.invalid_request,
}
"""By the stable kind of an error. ``not_leader_or_follower`` makes a client ask where the partition
is now, which is what it needs to do when this broker is closing."""


def code_of(error: StratalogError) -> ErrorCode:
    """The code that a client is told for an error."""
    if isinstance(error, Refused):
        return error.code
    for each in type(error).__mro__:
        code = BY_KIND.get(getattr(each, "kind", ""))
        if code is not None:
            return code
    return ErrorCode.unknown_server_error
