"""Who is in a group: its members, those that are still to join with the id they were given, the
static names, and the leader.

The leader is always a member, and a static name always belongs to a member.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from kio.schema.errors import ErrorCode

from stratalog.broker.groups.calls import Identity, JoinCall
from stratalog.broker.groups.member import Member
from stratalog.invariants import invariant


class Roster:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.pending: dict[str, float] = {}
        """Ids that were given out, and until when somebody may join with each."""
        self.leader: str | None = None
        self._static: dict[str, str] = {}
        # Counted, so that a join costs no walk over all members: those whose join does not wait,
        # and how many know each protocol.
        self._unready = 0
        self._knowing: Counter[str] = Counter()
        self.size = 0
        """The bytes that all members say of themselves."""

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.members

    @property
    def waiting(self) -> int:
        """How many joins wait."""
        return len(self.members) - self._unready

    def all_have_joined(self) -> bool:
        """Whether nobody is to be waited for."""
        return self._unready == 0 and not self.pending

    def add(self, member: Member) -> None:
        """The first one leads."""
        invariant(member.member_id not in self.members, "a member is added once")
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._unready += member.join_ticket is None
        self._count(member)

    def take(self, member: Member, call: JoinCall) -> None:
        """What a later join says replaces what an earlier one said."""
        self._discount(member)
        member.take(call)
        self._count(member)

    def _count(self, member: Member) -> None:
        self._knowing.update(member.protocol_names())
        self.size += member.size

    def _discount(self, member: Member) -> None:
        self._knowing.subtract(member.protocol_names())
        self._knowing = +self._knowing
        self.size -= member.size

    def remove(self, member_id: str) -> Member:
        """If it led, another member does from now on."""
        member = self.members.pop(member_id)
        self._unready -= member.join_ticket is None
        self._discount(member)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def rename(self, member_id: str, new_id: str) -> Member:
        """A static member has come back under a new id, and keeps its place."""
        member = self.members.pop(member_id)
        member.member_id = new_id
        self.members[new_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = new_id
        if self.leader == member_id:
            self.leader = new_id
        return member

    def await_join(self, member: Member, ticket: int | None) -> int | None:
        """A join waits from now on, or none does. Returns the one that waited until now."""
        earlier, member.join_ticket = member.join_ticket, ticket
        self._unready += (ticket is None) - (earlier is None)
        return earlier

    def static_id(self, instance_id: str) -> str | None:
        """The member id behind a static name."""
        return self._static.get(instance_id)

    def check(self, who: Identity) -> ErrorCode:
        """Whether it is a member, and under its static name the latest one."""
        if who.instance_id is not None:
            current = self._static.get(who.instance_id)
            if current is None:
                return ErrorCode.unknown_member_id
            if current != who.member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if who.member_id in self.members else ErrorCode.unknown_member_id

    def elect(self) -> bool:
        """A leader whose join does not wait gives way to a member whose join does. Returns whether
        there is a leader whose join waits."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_ticket is None:
            ready = (member for member in self if member.join_ticket is not None)
            chosen = next(ready, None)
            if chosen is None:
                return False
            self.leader = chosen.member_id
        return True

    def rebalance_timeout_s(self) -> float:
        """The most patient member sets the time that a rebalance may take."""
        return max((member.rebalance_timeout_s for member in self), default=0.0)

    def all_know_one_of(self, protocols: Iterable[str]) -> bool:
        """Whether one of them is known to every member."""
        return any(self._knowing[name] == len(self.members) for name in protocols)

    def choose_protocol(self) -> str:
        """Each member votes for the first of its protocols that all of them know. Of those with
        the most votes, the one that was named first."""
        everybody = len(self.members)
        votes = Counter(
            next(name for name, _ in member.protocols if self._knowing[name] == everybody)
            for member in self
        )
        return votes.most_common(1)[0][0]
