"""The group coordinator: every group of a broker, their timers, and the calls that wait.

The state machines decide (``group``); this carries out. Each group has at most one timer. No answer
overtakes the record that it depends on (``group_log``). While the log is down everybody is answered
``COORDINATOR_NOT_AVAILABLE``, which clients take as a reason to wait for a better coordinator.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from typing import Any
from uuid import UUID

import msgspec
from kio.schema.errors import ErrorCode

from stratalog.broker.groups.calls import Answer, Identity, JoinCall, Joined, SyncCall, Synced
from stratalog.broker.groups.generations import Limits, State, Step
from stratalog.broker.groups.group import Group
from stratalog.broker.groups.group_log import Changes, DurableMap, GroupLog
from stratalog.broker.groups.offsets import Commit, Place, emptied_at_ms, expired
from stratalog.broker.groups.stored import GroupKey, OffsetKey, StoredGroup, StoredOffset
from stratalog.broker.options import BrokerOptions
from stratalog.runtime import Runtime

GROUPS_MAX = 100_000
SWEEP_INTERVAL_S = 60.0
SWEPT_AT_ONCE = 500
STALL_S_MIN = 1.0
"""A timer that is later than this tells of a stopped process, not of silent members."""

_DOWN = ErrorCode.coordinator_not_available


@dataclass(slots=True)
class Seat:
    """A group with what belongs to it in this process."""

    group: Group
    stored: StoredGroup | None = None
    storing: asyncio.Task[ErrorCode] | None = None
    """The latest record on its way to the disk. Answers wait for it."""
    committing: set[asyncio.Future[None]] = field(default_factory=set)
    """Offsets on their way to the disk."""
    timer: asyncio.TimerHandle | None = None
    timer_at: float = inf

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


@dataclass(slots=True)
class Counters:
    """What happened since the broker was opened."""

    rebalances: int = 0
    commits: int = 0
    offsets_expired: int = 0


class Groups:
    """All groups of a broker. Open with ``Groups.open``."""

    def __init__(
        self,
        durable: DurableMap,
        options: BrokerOptions,
        runtime: Runtime,
        topic_exists: Callable[[UUID], bool],
    ) -> None:
        self.counters = Counters()
        self._options = options
        self._runtime = runtime
        self._topic_exists = topic_exists
        self._log = GroupLog(durable, self._answer_all_down)
        self._limits = Limits(options.group_members_max, options.group_initial_delay_ms / 1000)
        self._seats: dict[str, Seat] = {}
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._tickets = count()
        self._is_closed = False
        self._sweeper: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        durable: DurableMap,
        options: BrokerOptions,
        runtime: Runtime,
        topic_exists: Callable[[UUID], bool],
    ) -> "Groups":
        """Take up the groups where the log has them. ``topic_exists`` knows topics by their ids."""
        groups = cls(durable, options, runtime, topic_exists)
        groups._load()
        groups._sweeper = asyncio.create_task(groups._sweep_forever(), name="groups-sweep")
        return groups

    def _load(self) -> None:
        now = self._now()
        for name, stored in self._log.load().items():
            self._seats[name] = Seat(Group.restored(stored, self._limits, now), stored)
        for name in self._log.offsets:
            self._seats.setdefault(name, Seat(Group(self._limits)))
        for name, seat in self._seats.items():
            self._set_timer(name, seat)

    async def close(self) -> None:
        """Nothing is decided any more. Whoever waits is told to come again."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        for seat in self._seats.values():
            seat.stop()
        self._answer_all_down()
        self._log.stop()
        storing = [seat.storing for seat in self._seats.values() if seat.storing is not None]
        if storing:
            await asyncio.wait(storing)

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def is_down(self) -> bool:
        """Whether it can promise nothing any more."""
        return self._is_closed or self._log.is_down

    # -- members

    async def join(self, name: str, call: JoinCall) -> Joined:
        """Wait for the next generation, or be told at once why not."""
        error = self._check_join(name, call)
        if error is not ErrorCode.none:
            return Joined(error, call.member_id)
        seat = self._seats.get(name) or self._seats.setdefault(name, Seat(Group(self._limits)))
        new_id = f"{call.instance_id or call.client_id}-{self._runtime.new_id(32)}"
        named = replace(call, new_member_id=new_id)
        answer = await self._answer(
            name, seat, lambda ticket: seat.group.join(named, ticket, self._now())
        )
        return answer if isinstance(answer, Joined) else Joined(answer.error, call.member_id)

    def _check_join(self, name: str, call: JoinCall) -> ErrorCode:
        if self.is_down:
            return _DOWN
        if not name:
            return ErrorCode.invalid_group_id
        shortest, longest = self._options.group_session_ms_min, self._options.group_session_ms_max
        if not shortest <= call.session_timeout_s * 1000 <= longest:
            return ErrorCode.invalid_session_timeout
        if name in self._seats:
            return ErrorCode.none
        if call.member_id:
            return ErrorCode.unknown_member_id
        if len(self._seats) >= GROUPS_MAX:
            return ErrorCode.group_max_size_reached
        return ErrorCode.none

    async def sync(self, name: str, call: SyncCall) -> Synced:
        """Wait for the leader's assignment."""
        seat, error = self._find(name)
        if seat is None:
            return Synced(error)
        group = seat.group
        answer = await self._answer(
            name, seat, lambda ticket: group.sync(call, ticket, self._now())
        )
        return answer if isinstance(answer, Synced) else Synced(answer.error)

    def heartbeat(self, name: str, who: Identity) -> ErrorCode:
        """A member is alive."""
        seat, error = self._find(name)
        if seat is None:
            return error
        error = seat.group.heartbeat(who, self._now())
        self._set_timer(name, seat)
        return error

    async def leave(self, name: str, leaving: Sequence[Identity]) -> list[ErrorCode]:
        """Members go. One code for each."""
        seat, error = self._find(name)
        if seat is None:
            return [error] * len(leaving)
        errors, step = seat.group.leave(leaving, self._now())
        self._carry_out(name, seat, step)
        if seat.storing is not None and await asyncio.shield(seat.storing) is not ErrorCode.none:
            return [_DOWN] * len(leaving)
        return errors

    def _find(self, name: str) -> tuple[Seat | None, ErrorCode]:
        """A group, or the code that a member of none is told."""
        if self.is_down:
            return None, _DOWN
        if not name:
            return None, ErrorCode.invalid_group_id
        return self._seats.get(name), ErrorCode.unknown_member_id

    # -- offsets

    async def commit(self, name: str, who: Identity, commits: Sequence[Commit]) -> ErrorCode:
        """Keep offsets. Returns when they are durable; cancelling it does not take them back."""
        if self.is_down:
            return _DOWN
        seat = self._seats.get(name)
        if seat is None:
            if who.generation >= 0:
                return ErrorCode.illegal_generation
            if len(self._seats) >= GROUPS_MAX:
                return ErrorCode.group_max_size_reached
            seat = self._seats[name] = Seat(Group(self._limits))
        error = seat.group.check_commit(who, self._now())
        self._set_timer(name, seat)
        if error is not ErrorCode.none or not commits:
            return error
        now_ms = self._now_ms()
        self.counters.commits += 1
        return await self._change_offsets(
            seat,
            {
                OffsetKey(name, one.topic_id, one.partition): StoredOffset(
                    one.topic, one.offset, one.leader_epoch, one.metadata, now_ms
                )
                for one in commits
            },
        )

    def fetch(self, name: str) -> Mapping[Place, StoredOffset]:
        """The durable offsets of a group."""
        return self._log.offsets.of(name)

    async def delete_offsets(self, name: str, places: Iterable[Place]) -> ErrorCode:
        """Forget some offsets. Returns when that is durable."""
        if self.is_down:
            return _DOWN
        seat, known = self._seats.get(name), self.fetch(name)
        keys = [OffsetKey(name, *place) for place in places if place in known]
        if seat is None or not keys:
            return ErrorCode.none
        return await self._change_offsets(seat, dict.fromkeys(keys))

    async def _change_offsets(self, seat: Seat, changes: Changes) -> ErrorCode:
        committing = self._log.submit(changes)
        seat.committing.add(committing)
        committing.add_done_callback(seat.committing.discard)
        return await self._log.durable(committing)

    # -- for people

    def names(self) -> list[str]:
        return sorted(self._seats)

    def find(self, name: str) -> Group | None:
        """A group, to look at."""
        seat = self._seats.get(name)
        return None if seat is None else seat.group

    async def delete(self, name: str) -> ErrorCode:
        """An empty group and its offsets go. Returns when that is durable."""
        if self.is_down:
            return _DOWN
        if not name:
            return ErrorCode.invalid_group_id
        seat = self._seats.get(name)
        if seat is None or seat.group.state is State.DEAD:
            return ErrorCode.group_id_not_found
        if seat.group.state is not State.EMPTY:
            return ErrorCode.non_empty_group
        return await self._delete(name, seat)

    async def _delete(self, name: str, seat: Seat) -> ErrorCode:
        """Nobody can join or commit meanwhile, so nothing new is lost with what goes."""
        seat.group.die()
        on_their_way: list[asyncio.Future[Any]] = list(seat.committing)
        if seat.storing is not None:
            on_their_way.append(seat.storing)
        deleting = asyncio.create_task(
            self._tombstones(name, seat, on_their_way), name="groups-delete"
        )
        seat.storing = deleting
        return await asyncio.shield(deleting)

    async def _tombstones(
        self, name: str, seat: Seat, on_their_way: Sequence[asyncio.Future[Any]]
    ) -> ErrorCode:
        if on_their_way:
            await asyncio.wait(on_their_way)
        changes: dict[GroupKey | OffsetKey, None] = {GroupKey(name): None}
        changes.update(dict.fromkeys(OffsetKey(name, *place) for place in self.fetch(name)))
        error = await self._log.store(changes, None)
        if error is ErrorCode.none:
            seat.stop()
            del self._seats[name]
        return error

    # -- carrying out

    async def _answer(self, name: str, seat: Seat, ask: Callable[[int], Step]) -> Answer:
        """Ask the group, and wait for its answer. Whoever gives up waiting stays a member."""
        ticket = next(self._tickets)
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = waiting
        try:
            self._carry_out(name, seat, ask(ticket))
            return await waiting
        finally:
            del self._waiting[ticket]

    def _carry_out(self, name: str, seat: Seat, step: Step) -> None:
        """Store, then answer. Answers keep their order."""
        if step.record is not None:
            known = 0 if seat.stored is None else seat.stored.generation
            self.counters.rebalances += step.record.generation != known
            seat.stored = msgspec.structs.replace(step.record, changed_at_ms=self._now_ms())
            seat.storing = asyncio.create_task(
                self._log.store({GroupKey(name): seat.stored}, seat.storing), name="groups-store"
            )
        self._set_timer(name, seat)
        if not step.answers:
            return
        if seat.storing is None or seat.storing.done():
            self._release(step.answers)
        else:
            seat.storing.add_done_callback(lambda _: self._release(step.answers))

    def _release(self, answers: Iterable[tuple[int, Answer]]) -> None:
        for ticket, answer in answers:
            waiting = self._waiting.get(ticket)
            if waiting is not None and not waiting.done():
                waiting.set_result(Synced(_DOWN) if self.is_down else answer)

    def _answer_all_down(self) -> None:
        self._release([(ticket, Synced(_DOWN)) for ticket in list(self._waiting)])

    # -- time

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _now_ms(self) -> int:
        return self._runtime.now_us() // 1000

    def _set_timer(self, name: str, seat: Seat) -> None:
        wake_at = seat.group.wake_at
        if wake_at >= seat.timer_at or self._is_closed:
            return
        seat.stop()
        seat.timer_at = wake_at
        seat.timer = asyncio.get_running_loop().call_at(wake_at, self._wake, name, seat)

    def _wake(self, name: str, seat: Seat) -> None:
        now, late_s = self._now(), self._now() - seat.timer_at
        seat.timer, seat.timer_at = None, inf
        if self.is_down:
            return
        if late_s > STALL_S_MIN:
            seat.group.postpone(late_s)
        self._carry_out(name, seat, seat.group.tick(now))

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            await self.sweep()

    async def sweep(self) -> None:
        """Forget what has expired: offsets of groups that are empty and of topics that are gone,
        and then groups that have nothing left."""
        for number, name in enumerate(self.names()):
            if number % SWEPT_AT_ONCE == 0:
                await asyncio.sleep(0)
            seat = self._seats.get(name)
            if seat is not None and not self.is_down:
                await self._sweep_group(name, seat)

    async def _sweep_group(self, name: str, seat: Seat) -> None:
        if seat.committing:
            return  # What it brings may be newer than what would be judged here.
        places = self.fetch(name)
        gone = {place for place in places if not self._topic_exists(UUID(place[0]))}
        is_empty = seat.group.state is State.EMPTY and not seat.group.roster.pending
        if is_empty:
            retention_ms, since_ms = self._options.offsets_retention_ms, emptied_at_ms(seat.stored)
            gone.update(expired(places, since_ms, self._now_ms(), retention_ms))
        self.counters.offsets_expired += len(gone)
        if is_empty and len(gone) == len(places):
            await self._delete(name, seat)
        elif gone:
            await self._change_offsets(seat, {OffsetKey(name, *place): None for place in gone})
