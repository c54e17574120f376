"""One consumer group: Kafka's classic group protocol as a state machine.

``Generations`` is the machine; this is what members may ask of it, and with which code of Kafka
they are refused.
"""

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from stratalog.broker.groups.calls import Identity, JoinCall, SyncCall, Synced
from stratalog.broker.groups.generations import Generations, State, Step
from stratalog.broker.groups.member import NEW_MEMBER_JOIN_S_MAX, Member, size_of


class Group(Generations):
    """See the module's docstring."""

    # -- joining

    def join(self, call: JoinCall, ticket: int, now: float) -> Step:
        """A member wants to be in the next generation."""
        if not self._has_room_for(call.member_id) or not self._may_say(call):
            if call.member_id in self.roster:
                self._remove(call.member_id, now)
            self._refuse_join(ticket, call.member_id, ErrorCode.group_max_size_reached)
        elif self.state is State.DEAD:
            self._refuse_join(ticket, call.member_id, ErrorCode.coordinator_not_available)
        elif not self._supports(call):
            self._refuse_join(ticket, call.member_id, ErrorCode.inconsistent_group_protocol)
        elif call.member_id:
            self._join_again(call, ticket, now)
        else:
            self._join_anew(call, ticket, now)
        self._complete_if_all_joined(now)
        return self._step()

    def _join_anew(self, call: JoinCall, ticket: int, now: float) -> None:
        """Somebody without an id joins."""
        new_id = call.new_member_id
        current = None
        if call.instance_id is not None:
            current = self.roster.static_id(call.instance_id)
        if current is not None:
            self._replace_static(call, current, ticket, now)
        elif call.instance_id is None and call.must_know_its_id:
            self.roster.pending[new_id] = self._deadline(now + call.session_timeout_s)
            self._refuse_join(ticket, new_id, ErrorCode.member_id_required)
        else:
            self._add(call, new_id, ticket, now)

    def _join_again(self, call: JoinCall, ticket: int, now: float) -> None:
        """Somebody with an id joins: for the first time, for the next generation, or because the
        answer of the last time was lost."""
        member_id = call.member_id
        if call.instance_id is None and self.roster.pending.pop(member_id, None) is not None:
            self._add(call, member_id, ticket, now)
            return
        error = self.roster.check(Identity(member_id, call.instance_id))
        if error is not ErrorCode.none:
            self._refuse_join(ticket, member_id, error)
            return
        member = self.roster.members[member_id]
        is_unchanged = member.protocols == call.protocols
        has_generation = self.state is State.COMPLETING or (
            # A leader that joins again asks for a rebalance, for instance after partitions came.
            self.state is State.STABLE and member_id != self.roster.leader
        )
        if has_generation and is_unchanged:
            self._give(ticket, self._joined(member))
            return
        self.roster.take(member, call)
        self._wait_to_join(member, ticket)
        self._prepare(now)

    def _add(self, call: JoinCall, member_id: str, ticket: int, now: float) -> None:
        member = Member.of(call, member_id)
        member.join_ticket = ticket
        member.expires_at = self._deadline(now + NEW_MEMBER_JOIN_S_MAX)
        if not self.roster:
            self.protocol_type = call.protocol_type
        self._has_newcomers |= self.state is State.PREPARING and self.generation == 0
        self.roster.add(member)
        self._prepare(now)

    def _replace_static(self, call: JoinCall, old_id: str, ticket: int, now: float) -> None:
        """A static member has come back without its id. Whoever still uses the old id is fenced.

        In a stable group it takes over its assignment, and nobody else notices.
        """
        new_id, old_leader = call.new_member_id, self.roster.leader
        member = self.roster.rename(old_id, new_id)
        if old_id in self._unsynced:
            self._unsynced.remove(old_id)
            self._unsynced.add(new_id)
        waited = self.roster.await_join(member, None)
        if waited is not None:
            self._refuse_join(waited, old_id, ErrorCode.fenced_instance_id)
        if member.sync_ticket is not None:
            self._give(member.sync_ticket, Synced(ErrorCode.fenced_instance_id))
            member.sync_ticket = None
        self.roster.take(member, call)
        self._renew(member, now)
        if self.state is State.STABLE and self.roster.choose_protocol() == self.protocol:
            self._record = self.snapshot()
            if call.may_skip_assignment:
                is_leader = new_id == self.roster.leader
                self._give(ticket, self._joined(member, skip_assignment=is_leader))
            else:
                # Named by its old id the leader does not see itself in the answer, and so
                # computes no assignment that nobody asked for.
                self._give(ticket, self._joined(member, leader=old_leader or ""))
            return
        self._wait_to_join(member, ticket)
        self._prepare(now)

    def _has_room_for(self, member_id: str) -> bool:
        room = self.limits.members_max
        if self.state in (State.EMPTY, State.DEAD):
            return len(self.roster.pending) < room or member_id in self.roster.pending
        if not member_id and len(self.roster.pending) >= room:
            return False
        member = self.roster.members.get(member_id)
        if self.state is State.PREPARING:
            is_waiting = member is not None and member.join_ticket is not None
            return is_waiting or self.roster.waiting < room
        return member is not None or len(self.roster) < room

    def _may_say(self, call: JoinCall) -> bool:
        member = self.roster.members.get(call.member_id)
        before = 0 if member is None else member.size
        return self.roster.size - before + size_of(call.protocols) <= self.limits.bytes_max

    def _supports(self, call: JoinCall) -> bool:
        if self.state is State.EMPTY or not self.roster:
            return bool(call.protocol_type and call.protocols)
        return call.protocol_type == self.protocol_type and self.roster.all_know_one_of(
            name for name, _ in call.protocols
        )

    # -- assignments

    def sync(self, call: SyncCall, ticket: int, now: float) -> Step:
        """A member asks for its assignment; the leader brings those of all."""
        error = self._check_sync(call)
        if error is not ErrorCode.none:
            self._give(ticket, Synced(error))
            return self._step()
        member_id = call.who.member_id
        member = self.roster.members[member_id]
        self._has_synced(member_id)
        if self.state is State.STABLE:
            self._give(ticket, self._synced(member))
            self._renew(member, now)
            return self._step()
        if member.sync_ticket is not None:
            self._give(member.sync_ticket, Synced(ErrorCode.rebalance_in_progress))
        member.sync_ticket = ticket
        if member_id == self.roster.leader:
            assignments = dict(call.assignments)
            for one in self.roster:
                one.assignment = assignments.get(one.member_id, b"")
            self.state = State.STABLE
            self._record = self.snapshot()
            self._give_assignments(ErrorCode.none, now)
        return self._step()

    def _check_sync(self, call: SyncCall) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        error = self._check(call.who)
        if error is not ErrorCode.none:
            return error
        if call.protocol_type not in (None, self.protocol_type):
            return ErrorCode.inconsistent_group_protocol
        if self.state is State.PREPARING:
            return ErrorCode.rebalance_in_progress
        if call.protocol not in (None, self.protocol):
            return ErrorCode.inconsistent_group_protocol
        if size_of(call.assignments) > self.limits.bytes_max:
            return ErrorCode.unknown_server_error
        return ErrorCode.none

    # -- staying and leaving

    def heartbeat(self, who: Identity, now: float) -> ErrorCode:
        """A member is alive. Whoever must join again hears ``REBALANCE_IN_PROGRESS``."""
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        error = self._check(who)
        if error is not ErrorCode.none:
            return error
        self._renew(self.roster.members[who.member_id], now)
        if self.state is State.PREPARING:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def leave(self, leaving: Sequence[Identity], now: float) -> tuple[list[ErrorCode], Step]:
        """Members go, or are sent away by their static names. One answer for each."""
        if self.state is State.DEAD:
            return [ErrorCode.coordinator_not_available] * len(leaving), self._step()
        errors = [self._leave(who, now) for who in leaving]
        return errors, self._step()

    def _leave(self, who: Identity, now: float) -> ErrorCode:
        member_id: str | None = who.member_id
        if not who.member_id and who.instance_id is not None:
            member_id = self.roster.static_id(who.instance_id)
        elif self.roster.pending.pop(who.member_id, None) is not None:
            self._complete_if_all_joined(now)
            return ErrorCode.none
        else:
            error = self.roster.check(who)
            if error is not ErrorCode.none:
                return error
        if member_id is None:
            return ErrorCode.unknown_member_id
        self._remove(member_id, now)
        return ErrorCode.none

    def check_commit(self, who: Identity, now: float) -> ErrorCode:
        """Whether offsets may be committed in this member's name."""
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        if who.generation < 0 and self.state is State.EMPTY:
            return ErrorCode.none
        if who.generation < 0 and not who.member_id and who.instance_id is None:
            return ErrorCode.unknown_member_id
        error = self._check(who)
        if error is not ErrorCode.none:
            return error
        self._renew(self.roster.members[who.member_id], now)
        # While the others join, a member may still commit what it gives up. While assignments are
        # awaited it owns nothing that it could commit.
        if self.state is State.COMPLETING:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def _check(self, who: Identity) -> ErrorCode:
        error = self.roster.check(who)
        if error is ErrorCode.none and who.generation != self.generation:
            return ErrorCode.illegal_generation
        return error
