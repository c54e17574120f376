"""Where a client may ask partitions to be placed: on this node, once."""

from collections.abc import Mapping, Sequence

from kio.schema.errors import ErrorCode

from stratalog.broker.wire import Refused


def check_factor(factor: int) -> None:
    """One replica, or as many as the broker likes (-1)."""
    if factor in (1, -1):
        return
    if factor < 1:
        raise Refused(
            ErrorCode.invalid_replication_factor,
            "Replication factor was set to an invalid non-positive value.",
            hint="Use 1, or -1 for the default.",
        )
    raise Refused(
        ErrorCode.invalid_replication_factor,
        f"The target replication factor of {factor} cannot be reached because only 1 broker(s) "
        "are registered.",
        hint="Use 1, or -1 for the default.",
    )


def check_placement(brokers: Sequence[int], node_id: int) -> None:
    """One partition on these brokers: this node, and no other."""
    if not brokers:
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes an empty replica list.",
        )
    for broker in brokers:
        if broker != node_id:
            raise Refused(
                ErrorCode.invalid_replica_assignment,
                f"The manual partition assignment includes broker {broker}, but no such broker is "
                "registered.",
                hint=f"The only broker is {node_id}.",
            )
    if len(brokers) > 1:
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            f"The manual partition assignment includes the broker {node_id} more than once.",
        )


def assigned_partitions(placed: Mapping[int, Sequence[int]], node_id: int) -> int:
    """How many partitions a new topic gets by an assignment of all of them."""
    for brokers in placed.values():
        check_placement(brokers, node_id)
    if set(placed) != set(range(len(placed))):
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return len(placed)
