"""A group that a test plays with by hand: it names members, and moves the time."""

from itertools import count

from stratalog.broker.groups.calls import Answer, Identity, JoinCall, Joined, SyncCall, Synced
from stratalog.broker.groups.generations import Limits, Step
from stratalog.broker.groups.group import Group
from stratalog.broker.groups.stored import StoredGroup

EAGER = (("range", b"range-metadata"),)


class Played:
    """Keeps what was answered, and what would be stored."""

    def __init__(
        self,
        *,
        members_max: int = 10,
        initial_delay_s: float = 0.0,
        stored: StoredGroup | None = None,
    ) -> None:
        self.limits = Limits(members_max=members_max, initial_delay_s=initial_delay_s)
        self.now = 100.0
        self.group = (
            Group(self.limits) if stored is None else Group.restored(stored, self.limits, self.now)
        )
        self.answers: dict[int, Answer] = {}
        self.records: list[StoredGroup] = []
        self._tickets = count(1)
        self._new_ids = count(1)

    def _take(self, step: Step) -> None:
        for ticket, answer in step.answers:
            assert ticket not in self.answers, "a call is answered once"
            self.answers[ticket] = answer
        if step.record is not None:
            self.records.append(step.record)

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = EAGER,
        protocol_type: str = "consumer",
        session_timeout_s: float = 10.0,
        rebalance_timeout_s: float = 60.0,
        must_know_its_id: bool = False,
        may_skip_assignment: bool = False,
    ) -> int:
        """Returns the ticket. Members that have no id get ``m1``, ``m2`` …"""
        ticket = next(self._tickets)
        new_id = "" if member_id else f"m{next(self._new_ids)}"
        call = JoinCall(
            member_id=member_id,
            new_member_id=new_id,
            protocol_type=protocol_type,
            protocols=protocols,
            session_timeout_s=session_timeout_s,
            rebalance_timeout_s=rebalance_timeout_s,
            instance_id=instance_id,
            client_id="client",
            client_host="/127.0.0.1",
            must_know_its_id=must_know_its_id,
            may_skip_assignment=may_skip_assignment,
        )
        self._take(self.group.join(call, ticket, self.now))
        return ticket

    def joined(self, ticket: int) -> Joined:
        answer = self.answers[ticket]
        assert isinstance(answer, Joined)
        return answer

    def sync(
        self,
        member_id: str,
        *assignments: tuple[str, bytes],
        generation: int | None = None,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> int:
        ticket = next(self._tickets)
        at = self.group.generation if generation is None else generation
        who = Identity(member_id, instance_id, at)
        call = SyncCall(who, assignments, protocol_type, protocol)
        self._take(self.group.sync(call, ticket, self.now))
        return ticket

    def synced(self, ticket: int) -> Synced:
        answer = self.answers[ticket]
        assert isinstance(answer, Synced)
        return answer

    def leave(self, *leaving: Identity) -> list[str]:
        errors, step = self.group.leave(leaving, self.now)
        self._take(step)
        return [error.name for error in errors]

    def who(
        self, member_id: str, *, generation: int | None = None, instance_id: str | None = None
    ) -> Identity:
        at = self.group.generation if generation is None else generation
        return Identity(member_id, instance_id, at)

    def heartbeat(self, member_id: str, *, generation: int | None = None) -> str:
        return self.group.heartbeat(self.who(member_id, generation=generation), self.now).name

    def may_commit(self, who: Identity) -> str:
        return self.group.check_commit(who, self.now).name

    def after(self, seconds: float) -> None:
        """Time passes. The group is woken whenever it asked to be, and never in vain for ever."""
        until = self.now + seconds
        for _ in range(1_000):
            if self.group.wake_at > until:
                self.now = until
                return
            self.now = max(self.now, self.group.wake_at)
            self._take(self.group.tick(self.now))
        raise AssertionError("it asks to be woken without end")

    def beating(self, seconds: float, *members: str) -> None:
        """Time passes, and these members are heard every second of it."""
        for _ in range(round(seconds)):
            self.after(1.0)
            for member in members:
                self.heartbeat(member)


def stable(
    *instance_ids: str | None,
    protocols: tuple[tuple[str, bytes], ...] = EAGER,
    members_max: int = 10,
) -> Played:
    """A stable group of members ``m1`` (which leads), ``m2`` … in its first generation."""
    played = Played(initial_delay_s=1.0, members_max=members_max)
    tickets = [played.join(instance_id=name, protocols=protocols) for name in instance_ids]
    played.after(5.0)
    members = [played.joined(ticket).member_id for ticket in tickets]
    for member, name in list(zip(members, instance_ids, strict=True))[::-1]:
        brought = [(one, f"for-{one}".encode()) for one in members] if member == "m1" else []
        played.sync(member, *brought, instance_id=name)
    return played
