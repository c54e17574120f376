"""Bugs on purpose in the coordinator, from outside. Nothing here is shipped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from simulation.planting import plant
from stratalog.broker.groups.calls import Identity
from stratalog.broker.groups.coordinator import Groups, Seat
from stratalog.broker.groups.generations import Generations, Step
from stratalog.broker.groups.group import Group
from stratalog.broker.groups.group_log import Changes, GroupLog
from stratalog.broker.groups.member import Member
from stratalog.broker.groups.offsets import Offsets
from stratalog.broker.groups.stored import StoredGroup


@contextmanager
def offsets_not_replayed() -> Iterator[None]:
    load = GroupLog.load

    def forgetful(self: GroupLog) -> dict[str, StoredGroup]:
        groups = load(self)
        self.offsets = Offsets()
        return groups

    with plant(GroupLog, "load", forgetful):
        yield


@contextmanager
def commit_answered_before_durable() -> Iterator[None]:
    async def hasty(self: GroupLog, stored: asyncio.Future[None]) -> ErrorCode:
        return ErrorCode.none

    with plant(GroupLog, "durable", hasty):
        yield


@contextmanager
def generation_reused_after_restart() -> Iterator[None]:
    """Only a stable generation is stored, so one whose members only joined is given again."""
    carry_out = Groups._carry_out

    def thrifty(self: Groups, name: str, seat: Seat, step: Step) -> None:
        if step.record is not None and not step.record.is_stable:
            step = replace(step, record=None)
        carry_out(self, name, seat, step)

    with plant(Groups, "_carry_out", thrifty):
        yield


@contextmanager
def answers_overtake_their_record() -> Iterator[None]:
    carry_out = Groups._carry_out

    def hasty(self: Groups, name: str, seat: Seat, step: Step) -> None:
        self._release(step.answers)
        carry_out(self, name, seat, replace(step, answers=()))

    with plant(Groups, "_carry_out", hasty):
        yield


@contextmanager
def assignments_of_any_member_count() -> Iterator[None]:
    sync = Group.sync

    def trusting(self: Group, call: Any, ticket: int, now: float) -> Step:
        leader = self.roster.leader
        if call.assignments and call.who.member_id in self.roster:
            self.roster.leader = call.who.member_id
        try:
            return sync(
                self, replace(call, who=replace(call.who, generation=self.generation)), ticket, now
            )
        finally:
            self.roster.leader = leader

    with plant(Group, "sync", trusting):
        yield


@contextmanager
def any_generation_may_commit() -> Iterator[None]:
    check_commit = Group.check_commit

    def lenient(self: Group, who: Identity, now: float) -> ErrorCode:
        return check_commit(self, replace(who, generation=self.generation), now)

    with plant(Group, "check_commit", lenient):
        yield


@contextmanager
def each_member_gets_its_own_protocol() -> Iterator[None]:
    joined = Generations._joined

    def kind(self: Generations, member: Member, **given: Any) -> Any:
        return replace(joined(self, member, **given), protocol=member.protocols[0][0])

    with plant(Generations, "_joined", kind):
        yield


@contextmanager
def two_leaders() -> Iterator[None]:
    """A member that asks again is told that it leads."""
    joined = Generations._joined

    def flattering(self: Generations, member: Member, **given: Any) -> Any:
        return joined(self, member, **{**given, "leader": member.member_id})

    with plant(Generations, "_joined", flattering):
        yield


@contextmanager
def a_later_write_is_lost() -> Iterator[None]:
    """Now and then a commit is only kept in memory."""
    submit = GroupLog.submit
    turns = [0]

    def lazy(self: GroupLog, changes: Changes) -> asyncio.Future[None]:
        turns[0] += 1
        if turns[0] % 7:
            return submit(self, changes)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        self._apply(changes, done)
        return done

    with plant(GroupLog, "submit", lazy):
        yield


PLANTS = (
    offsets_not_replayed,
    commit_answered_before_durable,
    generation_reused_after_restart,
    answers_overtake_their_record,
    assignments_of_any_member_count,
    any_generation_may_commit,
    each_member_gets_its_own_protocol,
    two_leaders,
    a_later_write_is_lost,
)
