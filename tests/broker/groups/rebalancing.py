"""Groups under fire: members that join, commit, leave, fall silent and come back, answers that get
lost, and a coordinator that is killed or loses its power, on a simulated disk and in virtual time.

A seed is one run. ``Observer`` looks at everything that the coordinator answers, in the order in
which it does, and objects to what no member may ever see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import TypeVar

from kio.schema.errors import ErrorCode

from stratalog.broker import BrokerOptions
from stratalog.broker.groups.calls import Identity, JoinCall, Joined, SyncCall, Synced
from stratalog.broker.groups.coordinator import Groups
from stratalog.broker.groups.offsets import Commit
from stratalog.broker.groups.stored import (
    GroupKey,
    OffsetKey,
    decode_group,
    decode_offset,
    encode_key,
)
from stratalog.partitions import DiskLog, KeyedLog, time_of
from stratalog.segments import Disk, DiskOptions
from stratalog.store import MemoryStore
from stratalog.testing import Node, SimulatedFiles, Simulation, simulate

T = TypeVar("T")

GROUP = "group"
TOPIC_ID = "0" * 31 + "1"
PARTITIONS = 6
RUN_S = 90.0
SESSION_S = 6.0
REBALANCE_S = 10.0
HEARTBEAT_S = 1.0
REQUEST_S_MAX = 30.0
LATE = 0.5
LATE_S_MAX = 5.0
MEMBERS = 4
CONFUSED = 0.1
"""How often a member that does not lead brings assignments all the same."""
EAGER = (("range", b"r"),)
BOTH = (("cooperative-sticky", b"c"), ("range", b"r"))
OPTIONS = BrokerOptions(data=Path("unused"), group_session_ms_min=100)
DISK = DiskOptions(wal_file_bytes=4096, wal_files_max=4, segment_entries_max=16, timeout_s=5.0)
NONE = ErrorCode.none


class BrokenPromise(AssertionError):
    """What no client may ever see."""


class Lost(Exception):
    """No answer: the request, the answer, the coordinator or the connection is gone."""


@dataclass
class Generation:
    """What is known of one generation."""

    protocol: str
    leader: str | None = None
    """The name of the one that was told that it leads: it stays when its id changes."""
    brought: dict[bytes, dict[str, bytes]] = field(default_factory=dict)
    """What its leader has brought, by the mark that is in each assignment."""
    mark: bytes | None = None
    """The mark that was given out."""


class Observer:
    """What the coordinator has answered so far."""

    def __init__(self) -> None:
        self.generations: dict[int, Generation] = {}
        self.sent: dict[int, list[int]] = {part: [] for part in range(PARTITIONS)}
        self.acked: dict[int, int] = dict.fromkeys(range(PARTITIONS), -1)
        self.commits = self.fetches = self.stable = 0

    def joined(self, name: str, joined: Joined, stored: int) -> None:
        number = joined.generation
        if stored < number:
            raise BrokenPromise(f"generation {number} was answered before it was durable")
        if number < max(self.generations, default=0):
            raise BrokenPromise(f"generation {number} came after {max(self.generations)}")
        protocol = joined.protocol or ""
        known = self.generations.setdefault(number, Generation(protocol))
        if known.protocol != protocol:
            raise BrokenPromise(f"{protocol} and {known.protocol} in generation {number}")
        if joined.members or joined.leader == joined.member_id:
            if known.leader not in (None, name):
                raise BrokenPromise(f"{name} and {known.leader} lead generation {number}")
            known.leader = name

    def brings(self, name: str, number: int, mark: bytes, assignments: dict[str, bytes]) -> None:
        known = self.generations[number]
        if known.leader == name:
            known.brought[mark] = assignments

    def synced(self, number: int, synced: Synced, is_stored: bool) -> None:
        if not is_stored:
            raise BrokenPromise(f"an assignment of generation {number} was not durable")
        self.stable += 1
        mark, _, _ = synced.assignment.partition(b":")
        if not mark:
            return  # It joined after the leader was told who there is.
        known = self.generations[number]
        if mark not in known.brought:
            raise BrokenPromise(f"{mark!r} is not from the leader of generation {number}")
        if known.mark not in (None, mark):
            raise BrokenPromise(f"two assignments in generation {number}")
        if synced.assignment not in known.brought[mark].values():
            raise BrokenPromise(f"{synced.assignment!r} was never brought")
        known.mark = mark

    def commit_taken(self, theirs: int, ours: int) -> None:
        if theirs != ours:
            raise BrokenPromise(f"generation {theirs} has committed in generation {ours}")

    def commit_acked(self, part: int, offset: int, stored: int) -> None:
        self.commits += 1
        if stored < offset:
            raise BrokenPromise(f"offset {offset} was acknowledged before it was durable")
        self.acked[part] = max(self.acked[part], offset)

    def fetched(self, part: int, offset: int, acked_before: int) -> None:
        self.fetches += 1
        if offset < acked_before:
            raise BrokenPromise(f"partition {part} is at {offset}, and {acked_before} was acked")
        if offset != -1 and offset not in self.sent[part]:
            raise BrokenPromise(f"{offset} was never sent for partition {part}")


@dataclass
class Life:
    """One process of the coordinator."""

    node: Node
    disk: Disk
    log: DiskLog
    map: KeyedLog
    groups: Groups

    def stored_generation(self) -> tuple[int, bool]:
        value = self.map.get(encode_key(GroupKey(GROUP)))
        stored = None if value is None else decode_group(value)
        return (0, False) if stored is None else (stored.generation, stored.is_stable)

    def stored_offset(self, part: int) -> int:
        value = self.map.get(encode_key(OffsetKey(GROUP, TOPIC_ID, part)))
        return -1 if value is None else decode_offset(value).offset


class World:
    """The disk, the coordinator on it, and the way to it."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.random = simulation.random
        self.observer = Observer()
        self.files = SimulatedFiles(random=Random(self.random.getrandbits(32)))
        self.life: Life | None = None
        self.crashes = 0
        self.over = False
        self.late: list[asyncio.Future[object]] = []
        """Requests that arrive when their senders have given them up."""
        self._offsets = count()
        self.loss = self.random.choice((0.0, 0.02, 0.1))

    async def start(self) -> None:
        node = self.simulation.node(f"coordinator-{self.crashes}", MemoryStore())
        self.life = await node.spawn(self._open(node))

    async def _open(self, node: Node) -> Life:
        runtime = node.runtime
        disk = await Disk.open(self.files, DISK, runtime=runtime, time_of=time_of)
        log = await DiskLog.open(disk, "groups", runtime=runtime)
        durable = await KeyedLog.open(log)
        groups = await Groups.open(durable, OPTIONS, runtime, lambda _: True)
        return Life(node, disk, log, durable, groups)

    async def crash(self) -> None:
        """Its process is killed, or the machine loses its power; and comes back."""
        life, self.life = self.life, None
        assert life is not None
        self.crashes += 1
        self.simulation.trace.note("the coordinator is gone")
        self.files.crash()
        life.node.crash()
        lost_power = self.random.random() < 0.5
        self.files = (
            self.files.after_power_loss(Random(self.random.getrandbits(32)))
            if lost_power
            else self.files.after_kill()
        )
        await asyncio.sleep(self.random.choice((0.05, 1.0, 8.0)))
        await self.start()

    async def ask(self, request: Callable[[Life], Awaitable[T]]) -> T:
        """A request over a connection on which anything may get lost."""
        await asyncio.sleep(self.random.uniform(0.0, 0.01))
        life = self.life
        if life is None:
            raise Lost
        if self.random.random() < self.loss:
            # Nobody waits for it any more; and yet it may be read later, from the old connection.
            if self.random.random() < LATE:
                self.late.append(life.node.spawn(_carefully(self._late(request, life))))
            raise Lost
        handling = life.node.spawn(_carefully(request(life)))
        is_lost = self.random.random() < self.loss
        patience_s = self.random.uniform(0.0, 0.1) if is_lost else REQUEST_S_MAX
        done, _ = await asyncio.wait([handling], timeout=patience_s)
        if not done or handling.cancelled() or is_lost:
            raise Lost
        outcome = handling.result()
        if isinstance(outcome, BrokenPromise):
            raise outcome
        return outcome

    async def _late(self, request: Callable[[Life], Awaitable[T]], life: Life) -> T:
        await asyncio.sleep(self.random.uniform(0.1, LATE_S_MAX))
        return await request(life)

    def check_late(self) -> None:
        """What late requests were answered is no more allowed to break a promise."""
        for one in self.late:
            outcome = one.result() if one.done() and not one.cancelled() else None
            if isinstance(outcome, BrokenPromise):
                raise outcome

    # -- the requests, with an observer where the broker has its handlers

    async def join(self, name: str, call: JoinCall) -> Joined:
        async def handle(life: Life) -> Joined:
            joined = await life.groups.join(GROUP, call)
            if joined.error is NONE:
                self.observer.joined(name, joined, life.stored_generation()[0])
            return joined

        return await self.ask(handle)

    async def sync(self, name: str, call: SyncCall, mark: bytes) -> Synced:
        async def handle(life: Life) -> Synced:
            if call.assignments:
                brought = dict(call.assignments)
                self.observer.brings(name, call.who.generation, mark, brought)
            synced = await life.groups.sync(GROUP, call)
            if synced.error is NONE:
                number, is_stable = life.stored_generation()
                is_stored = number > call.who.generation or is_stable
                self.observer.synced(call.who.generation, synced, is_stored)
            return synced

        return await self.ask(handle)

    async def heartbeat(self, who: Identity) -> ErrorCode:
        async def handle(life: Life) -> ErrorCode:
            return life.groups.heartbeat(GROUP, who)

        return await self.ask(handle)

    async def commit(self, who: Identity, part: int) -> ErrorCode:
        async def handle(life: Life) -> ErrorCode:
            offset = next(self._offsets)
            self.observer.sent[part].append(offset)
            group = life.groups.find(GROUP)
            generation = 0 if group is None else group.generation
            error = await life.groups.commit(GROUP, who, [Commit("t", TOPIC_ID, part, offset)])
            if error is NONE:
                self.observer.commit_taken(who.generation, generation)
                self.observer.commit_acked(part, offset, life.stored_offset(part))
            return error

        return await self.ask(handle)

    async def fetch(self, part: int) -> None:
        async def handle(life: Life) -> None:
            if not life.groups.is_down:
                at = life.groups.fetch(GROUP).get((TOPIC_ID, part))
                offset = -1 if at is None else at.offset
                self.observer.fetched(part, offset, self.observer.acked[part])

        await self.ask(handle)

    async def leave(self, who: Identity) -> None:
        async def handle(life: Life) -> None:
            await life.groups.leave(GROUP, [who])

        await self.ask(handle)


async def _carefully(request: Awaitable[T]) -> T | BrokenPromise:
    """A broken promise is an answer too: a task that nobody waits for must not swallow it."""
    try:
        return await request
    except BrokenPromise as broken:
        return broken


class Member:
    """A consumer as the published clients are: it joins, syncs, sends heartbeats and commits."""

    def __init__(self, world: World, name: str, *, static: bool, cooperative: bool) -> None:
        self.world = world
        self.name = name
        self.instance_id = name if static else None
        self.protocols = BOTH if cooperative else EAGER
        self.version = world.random.choice((3, 5, 9))
        self.member_id = ""
        self.generation = -1
        self.marks = count()

    @property
    def who(self) -> Identity:
        return Identity(self.member_id, self.instance_id, self.generation)

    async def live(self) -> None:
        """Until the end of the run, unless it is fenced."""
        while not self.world.over:
            try:
                joined = await self._join()
                parts = await self._sync(joined)
                await self._work(parts)
            except Lost:
                await asyncio.sleep(self.world.random.uniform(0.05, 0.3))
            except Again as again:
                if again.error is ErrorCode.fenced_instance_id:
                    return
                if again.error in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation):
                    self.member_id = ""
                await asyncio.sleep(0.05)

    async def _join(self) -> Joined:
        call = JoinCall(
            member_id=self.member_id,
            new_member_id="",
            protocol_type="consumer",
            protocols=self.protocols,
            session_timeout_s=SESSION_S,
            rebalance_timeout_s=REBALANCE_S,
            instance_id=self.instance_id,
            client_id=self.name,
            must_know_its_id=self.version >= 4,
            may_skip_assignment=self.version >= 9,
        )
        joined = await self.world.join(self.name, call)
        if joined.error is ErrorCode.member_id_required:
            self.member_id = joined.member_id
        check(joined.error)
        self.member_id, self.generation = joined.member_id, joined.generation
        return joined

    async def _sync(self, joined: Joined) -> list[int]:
        mark = f"{self.name}/{self.generation}/{next(self.marks)}".encode()
        assignments: dict[str, bytes] = {}
        members = [one.member_id for one in joined.members]
        if not members and self.world.random.random() < CONFUSED:
            members = [self.member_id]  # It takes itself for the leader: nobody must believe it.
        if members and not joined.skip_assignment:
            for number, member in enumerate(members):
                parts = range(number, PARTITIONS, len(members))
                assignments[member] = mark + b":" + ",".join(map(str, parts)).encode()
        call = SyncCall(self.who, tuple(assignments.items()))
        synced = await self.world.sync(self.name, call, mark)
        check(synced.error)
        _, _, parts_text = synced.assignment.decode().partition(":")
        return [int(part) for part in parts_text.split(",") if part]

    async def _work(self, parts: list[int]) -> None:
        for part in parts:
            await self.world.fetch(part)
        while not self.world.over:
            await asyncio.sleep(HEARTBEAT_S * self.world.random.uniform(0.5, 1.2))
            for part in parts:
                if self.world.random.random() < 0.4:
                    check(await self.world.commit(self.who, part))
            error = await self.world.heartbeat(self.who)
            if error is ErrorCode.rebalance_in_progress and parts:
                check(await self.world.commit(self.who, parts[0]))
            check(error)


class Again(Exception):
    """The member must join again, or was fenced."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


def check(error: ErrorCode) -> None:
    if error is not NONE:
        raise Again(error)


async def members_come_and_go(world: World, slot: int) -> None:
    """A place for one member at a time: it dies, leaves, and another one takes its place."""
    random = world.random
    static = random.random() < 0.4
    cooperative = random.random() < 0.5
    for number in count():
        name = f"static-{slot}" if static else f"member-{slot}-{number}"
        member = Member(world, name, static=static, cooperative=cooperative)
        living = asyncio.ensure_future(member.live())
        await asyncio.wait([living], timeout=random.uniform(5.0, 60.0))
        if living.done():
            living.result()
            if world.over:
                return
        # Killed in the middle of anything; or it says good-bye; or it goes silent and stays so.
        living.cancel()
        await asyncio.wait([living])
        if random.random() < 0.5 and not static:
            try:
                await world.leave(Identity(member.member_id))
            except Lost:
                continue
        await asyncio.sleep(random.choice((0.0, 0.5, 2.0 * SESSION_S)))


async def crashes_happen(world: World) -> None:
    while not world.over:
        await asyncio.sleep(world.random.uniform(1.0, 40.0))
        await world.crash()


async def run(simulation: Simulation) -> Observer:
    world = World(simulation)
    await world.start()
    slots = [asyncio.ensure_future(members_come_and_go(world, slot)) for slot in range(MEMBERS)]
    crashing = asyncio.ensure_future(crashes_happen(world))
    done, _ = await asyncio.wait(
        [*slots, crashing], timeout=RUN_S, return_when=asyncio.FIRST_EXCEPTION
    )
    world.over = True
    for one in done:
        one.result()
    return await settles(world, slots, crashing)


async def settles(
    world: World, slots: Sequence[asyncio.Future[None]], crashing: asyncio.Future[None]
) -> Observer:
    """When nothing is disturbed any more, what was acknowledged is there."""
    for one in (*slots, crashing):
        one.cancel()
    await asyncio.wait([*slots, crashing])
    if world.life is None:
        await world.start()
    world.loss = 0.0
    world.check_late()
    for part in range(PARTITIONS):
        await world.fetch(part)
    return world.observer


def play(seed: int) -> Observer:
    """One run. Raises ``BrokenPromise``."""
    return simulate(run, seed, time_max_s=1_000.0)
