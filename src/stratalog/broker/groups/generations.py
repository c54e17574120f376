"""How the generations of a group come and go.

    Empty ── join ──► PreparingRebalance ── all have joined ──► CompletingRebalance
                        ▲   ▲                                        │
                        │   └── join, leave, a silent member ────────┤ the leader's sync
                        └────── join, leave, a silent member ── Stable

It does no I/O and reads no clock: the time is passed in, in seconds of the event loop. Calls that
must wait leave a *ticket*, a number of the caller's choice, and are answered by a later step. A
step may carry a record. The caller must store it before it hands out the answers of that step or
of any later one: then no member ever hears of a generation that a crash could take back.

``wake_at`` is when ``tick`` must be called at the latest. It may be too early, never too late.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Self

from kio.schema.errors import ErrorCode

from stratalog.broker.groups.calls import Answer, Joined, Synced
from stratalog.broker.groups.member import Member
from stratalog.broker.groups.roster import Roster
from stratalog.broker.groups.stored import StoredGroup
from stratalog.invariants import invariant


class State(StrEnum):
    """Under the names by which Kafka's tools know them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a group allows."""

    members_max: int = 10_000
    initial_delay_s: float = 0.5
    """How long the first rebalance of an empty group waits for more members."""
    bytes_max: int = 16 << 20
    """The most bytes that all members say of themselves, and that all assignments have: each is
    stored with the group in one write."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a call has led to: store the record, if there is one, then give the answers."""

    answers: tuple[tuple[int, Answer], ...] = ()
    record: StoredGroup | None = None


class Generations:
    """See the module's docstring."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.roster = Roster()
        self.wake_at = inf
        self._join_deadline = inf
        self._is_initial = False
        self._initial_left_s = 0.0
        self._has_newcomers = False
        self._sync_deadline = inf
        self._unsynced: set[str] = set()
        self._answers: list[tuple[int, Answer]] = []
        self._record: StoredGroup | None = None

    # -- rebalances

    def _prepare(self, now: float) -> None:
        """A rebalance begins, unless one is under way."""
        if self.state is State.PREPARING:
            return
        if self.state is State.COMPLETING:
            self._give_assignments(ErrorCode.rebalance_in_progress, now)
        self._sync_deadline = inf
        self._unsynced.clear()
        delay_s = self.limits.initial_delay_s
        patience_s = self.roster.rebalance_timeout_s()
        self._is_initial = self.state is State.EMPTY and delay_s > 0
        self._initial_left_s = max(patience_s - delay_s, 0.0)
        self.state = State.PREPARING
        self._join_deadline = self._deadline(now + (delay_s if self._is_initial else patience_s))
        self._complete_if_all_joined(now)

    def _complete_if_all_joined(self, now: float) -> None:
        is_awaiting = self.state is State.PREPARING and not self._is_initial
        if is_awaiting and self.roster.all_have_joined():
            self._complete_joins(now)

    def _join_time_is_up(self, now: float) -> None:
        if self._is_initial and self._has_newcomers and self._initial_left_s > 0:
            self._has_newcomers = False
            delay_s = min(self.limits.initial_delay_s, self._initial_left_s)
            self._initial_left_s -= delay_s
            self._join_deadline = self._deadline(now + delay_s)
            return
        self._complete_joins(now)

    def _complete_joins(self, now: float) -> None:
        """Go on with those who have joined. Static members stay until their sessions end."""
        for member in list(self.roster):
            if member.join_ticket is None and member.instance_id is None:
                self.roster.remove(member.member_id)
        self._is_initial = self._has_newcomers = False
        if len(self.roster) and not self.roster.elect():
            # Only silent static members are left. They come, or their sessions end.
            self._join_deadline = self._deadline(now + self.roster.rebalance_timeout_s())
            return
        self._join_deadline = inf
        self._begin_generation(now)

    def _begin_generation(self, now: float) -> None:
        self.generation += 1
        if not len(self.roster):
            self.state, self.protocol = State.EMPTY, None
            self._record = self.snapshot()
            return
        self.state, self.protocol = State.COMPLETING, self.roster.choose_protocol()
        for member in self.roster:
            member.assignment = b""
        self._record = self.snapshot()
        for member in self.roster:
            member.is_new = False
            self._unsynced.add(member.member_id)
            ticket = self.roster.await_join(member, None)
            if ticket is not None:
                self._give(ticket, self._joined(member))
            self._renew(member, now)
        self._sync_deadline = self._deadline(now + self.roster.rebalance_timeout_s())

    def _give_assignments(self, error: ErrorCode, now: float) -> None:
        for member in self.roster:
            if member.sync_ticket is not None:
                answer = Synced(error) if error is not ErrorCode.none else self._synced(member)
                self._give(member.sync_ticket, answer)
                member.sync_ticket = None
                self._renew(member, now)

    def _has_synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_deadline = inf

    def _sync_time_is_up(self, now: float) -> None:
        """Members that joined and then never asked for their assignment are out."""
        self._sync_deadline = inf
        for member_id in sorted(self._unsynced):
            self._answer_removed(self.roster.remove(member_id))
        self._prepare(now)

    def _wait_to_join(self, member: Member, ticket: int) -> None:
        """The join of before, if it still waits, is told to come again: its sender is gone, or
        knows that it has sent another one."""
        earlier = self.roster.await_join(member, ticket)
        if earlier is not None:
            self._refuse_join(earlier, member.member_id, ErrorCode.rebalance_in_progress)

    # -- members go

    def _remove(self, member_id: str, now: float) -> None:
        self._answer_removed(self.roster.remove(member_id))
        self._has_synced(member_id)
        self._prepare(now)
        self._complete_if_all_joined(now)

    def _answer_removed(self, member: Member) -> None:
        """Its client, if it is still there, joins anew."""
        if member.join_ticket is not None:
            self._refuse_join(member.join_ticket, member.member_id, ErrorCode.unknown_member_id)
        if member.sync_ticket is not None:
            self._give(member.sync_ticket, Synced(ErrorCode.unknown_member_id))

    def die(self) -> None:
        """The group is deleted. Only an empty one may be."""
        invariant(self.state is State.EMPTY, "only an empty group is deleted")
        self.state = State.DEAD

    # -- time

    def tick(self, now: float) -> Step:
        """What is due by now happens."""
        if self._join_deadline <= now:
            self._join_time_is_up(now)
        if self._sync_deadline <= now:
            self._sync_time_is_up(now)
        for member_id in [one for one, until in self.roster.pending.items() if until <= now]:
            del self.roster.pending[member_id]
        for member in list(self.roster):
            is_silent = member.expires_at <= now and not member.is_awaited()
            if is_silent and member.member_id in self.roster:
                self._remove(member.member_id, now)
        self._complete_if_all_joined(now)
        self.wake_at = min(self._deadlines(), default=inf)
        return self._step()

    def postpone(self, by_s: float) -> None:
        """The process stood still for so long: it cannot tell who was silent in that time."""
        self._join_deadline += by_s
        self._sync_deadline += by_s
        for member_id in self.roster.pending:
            self.roster.pending[member_id] += by_s
        for member in self.roster:
            member.expires_at += by_s

    def _deadlines(self) -> Iterable[float]:
        yield self._join_deadline
        yield self._sync_deadline
        yield from self.roster.pending.values()
        for member in self.roster:
            if not member.is_awaited():
                yield member.expires_at

    def _deadline(self, at: float) -> float:
        self.wake_at = min(self.wake_at, at)
        return at

    def _renew(self, member: Member, now: float) -> None:
        """Not for one whose first join still waits: its time is not its session's."""
        if not member.is_new:
            member.expires_at = self._deadline(now + member.session_timeout_s)

    # -- answers and records

    def _joined(
        self, member: Member, *, leader: str | None = None, skip_assignment: bool = False
    ) -> Joined:
        shown = self.roster.leader if leader is None else leader
        members = (one.shown(self.protocol) for one in self.roster)
        return Joined(
            ErrorCode.none,
            member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=shown or "",
            members=tuple(members) if member.member_id == shown else (),
            skip_assignment=skip_assignment,
        )

    def _synced(self, member: Member) -> Synced:
        return Synced(ErrorCode.none, member.assignment, self.protocol_type, self.protocol)

    def _refuse_join(self, ticket: int, member_id: str, error: ErrorCode) -> None:
        self._give(ticket, Joined(error, member_id))

    def _give(self, ticket: int, answer: Answer) -> None:
        self._answers.append((ticket, answer))

    def _step(self) -> Step:
        step = Step(tuple(self._answers), self._record)
        self._answers, self._record = [], None
        return step

    def snapshot(self) -> StoredGroup:
        """What of it must survive a crash."""
        return StoredGroup(
            generation=self.generation,
            is_stable=self.state is State.STABLE,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.roster.leader,
            members=tuple(member.stored() for member in self.roster),
        )

    @classmethod
    def dead(cls) -> Self:
        """What stands for a group that is not there."""
        group = cls(Limits())
        group.die()
        return group

    @classmethod
    def restored(cls, stored: StoredGroup, limits: Limits, now: float) -> Self:
        """The group after a restart. Its members have their whole timeouts to come back in."""
        group = cls(limits)
        group.generation = stored.generation
        group.protocol_type, group.protocol = stored.protocol_type, stored.protocol
        for one in stored.members:
            member = Member.restored(one)
            member.expires_at = group._deadline(now + member.session_timeout_s)
            group.roster.add(member)
        group.roster.leader = stored.leader
        if stored.is_stable:
            group.state = State.STABLE
        elif stored.members:
            group.state = State.COMPLETING
            group._unsynced.update(member.member_id for member in group.roster)
            group._sync_deadline = group._deadline(now + group.roster.rebalance_timeout_s())
        return group
