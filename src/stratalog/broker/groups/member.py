"""One member of a group."""

from dataclasses import dataclass

from stratalog.broker.groups.calls import JoinCall, JoinedMember
from stratalog.broker.groups.stored import StoredMember

NEW_MEMBER_JOIN_S_MAX = 300.0
"""How long the first join of a member may wait. Its client cannot send heartbeats meanwhile, and
one that went away and came back under another id must not be waited for without end."""


@dataclass(slots=True)
class Member:
    """What the group knows of one member. Times are those of the event loop."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_s: float
    rebalance_timeout_s: float
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = False
    """Its first join has not been answered yet."""
    expires_at: float = 0.0
    join_ticket: int | None = None
    """The join that waits for the next generation."""
    sync_ticket: int | None = None
    """The sync that waits for the leader's assignment."""

    @classmethod
    def of(cls, call: JoinCall, member_id: str) -> "Member":
        """A member that joins for the first time."""
        return cls(
            member_id=member_id,
            instance_id=call.instance_id,
            client_id=call.client_id,
            client_host=call.client_host,
            session_timeout_s=call.session_timeout_s,
            rebalance_timeout_s=call.rebalance_timeout_s,
            protocols=call.protocols,
            is_new=True,
        )

    def take(self, call: JoinCall) -> None:
        """What a later join says replaces what an earlier one said."""
        self.client_id, self.client_host = call.client_id, call.client_host
        self.session_timeout_s = call.session_timeout_s
        self.rebalance_timeout_s = call.rebalance_timeout_s
        self.protocols = call.protocols

    def protocol_names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.protocols)

    @property
    def size(self) -> int:
        """The bytes that it says of itself."""
        return size_of(self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        """What it said beside one protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def shown(self, protocol: str | None) -> JoinedMember:
        """As the leader sees it."""
        return JoinedMember(self.member_id, self.instance_id, self.metadata(protocol))

    def is_awaited(self) -> bool:
        """Whether it is the group that makes this member wait: then its silence is no sign."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def stored(self) -> StoredMember:
        """Without anything that belongs to one run of the process."""
        return StoredMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=round(self.session_timeout_s * 1000),
            rebalance_timeout_ms=round(self.rebalance_timeout_s * 1000),
            protocols=self.protocols,
            assignment=self.assignment,
        )

    @classmethod
    def restored(cls, stored: StoredMember) -> "Member":
        return cls(
            member_id=stored.member_id,
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_s=stored.session_timeout_ms / 1000,
            rebalance_timeout_s=stored.rebalance_timeout_ms / 1000,
            protocols=stored.protocols,
            assignment=stored.assignment,
        )


def size_of(protocols: tuple[tuple[str, bytes], ...]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)
