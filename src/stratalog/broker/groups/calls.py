"""What members ask of their group, and what they are answered.

Plain values, free of any version of the wire's layouts.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class JoinCall:
    """A member wants to be in the next generation."""

    member_id: str
    """Empty for one that has no id yet."""
    new_member_id: str
    """The id that it gets if it has none."""
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """(Name, metadata) of the assignors that it knows, the one that it likes best first."""
    session_timeout_s: float
    rebalance_timeout_s: float
    instance_id: str | None = None
    """A static member's own name, which outlives its member ids."""
    client_id: str = ""
    client_host: str = ""
    must_know_its_id: bool = False
    """A new dynamic member is told its id first: lost answers leave no ghosts behind."""
    may_skip_assignment: bool = False
    """It understands that it is the leader of a generation whose assignment stands."""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """One member, as the leader is told."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a ``JoinCall``."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    """All members for the leader, none for the others."""
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a member says that it is, and of which generation."""

    member_id: str
    instance_id: str | None = None
    generation: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class SyncCall:
    """A member asks for its assignment. The leader brings everybody's."""

    who: Identity
    assignments: tuple[tuple[str, bytes], ...] = ()
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class Synced:
    """The answer to a ``SyncCall``."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


Answer = Joined | Synced
