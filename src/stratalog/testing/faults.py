"""A store that behaves as badly as its contract allows, from a seed.

``FaultyStore`` is one process's way to a store that others may reach by ways of their own. For
each operation it draws how long the request travels, what goes wrong, and how long the answer
travels. Everything it does is allowed by ``stratalog.store.protocol``:

    put_error         ``Unknown``, and the put never lands
    lost_answer       ``Unknown``, and the put was carried out
    late_landing      ``Unknown``, and the put is carried out later, if its condition holds *then*
    echoed_refusal    the put landed, yet the answer is the refusal of a second attempt
    false_refusal     refused although nothing else changed (S3's 409), and it did not land
    duplicate         carried out, answered, and carried out again later
    read_error        ``Unavailable``

For deletions ``put_error``, ``lost_answer``, ``late_landing`` and ``duplicate`` count too, with
``Unavailable`` as the answer. One with a lost answer may have deleted only some of its paths.

``crash_at(n)`` kills the process at its n-th operation. From then on each operation through this
handle raises ``Crashed`` and has no effect; a request that was already travelling may still land,
as one whose caller was cancelled may (``abandoned_lands``). ``operations`` lists what was asked,
so that a test can count the operations of a run and then crash another run at each of them.
``faults`` may be replaced while it runs: ``store.faults = Faults()`` heals it.

It works on any event loop: under ``SimulatedLoop`` its delays are virtual, elsewhere real.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field, fields
from itertools import accumulate
from random import Random
from typing import Generic, Literal, NamedTuple, Self, TypeVar, get_args

from stratalog.errors import Conflict, Exists, StratalogError, Unavailable, Unknown
from stratalog.store import Blob, Head, Listed, Store

T = TypeVar("T")

Fault = Literal[
    "put_error", "lost_answer", "late_landing", "echoed_refusal", "false_refusal", "duplicate"
]
PUT_FAULTS: tuple[Fault, ...] = get_args(Fault)
REFUSALS: tuple[Fault, ...] = ("echoed_refusal", "false_refusal")
Range = tuple[float, float]


class Crashed(BaseException):
    """The process is dead. Not an ``Exception``, so that no product code survives it by mistake."""


class StoreCall(NamedTuple):
    """One operation as it was asked for. Numbers start at 1."""

    number: int
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class _Write(Generic[T]):
    """A request that changes the store, and how its caller is lied to."""

    name: str
    path: str
    effect: Callable[[], Awaitable[T]]
    lost: type[StratalogError]
    refused: type[StratalogError] | None = None
    torn: Callable[[], Awaitable[object]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Probabilities per operation, and ranges in seconds. The default has no faults."""

    request_s: Range = (0.0, 0.0)
    answer_s: Range = (0.0, 0.0)
    slow: float = 0.0
    slow_s: Range = (0.1, 5.0)
    read_error: float = 0.0
    put_error: float = 0.0
    lost_answer: float = 0.0
    late_landing: float = 0.0
    late_s: Range = (0.01, 20.0)
    echoed_refusal: float = 0.0
    false_refusal: float = 0.0
    duplicate: float = 0.0
    abandoned_lands: float = 0.5
    thresholds: tuple[tuple[float, Fault], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name, ())
            if isinstance(value, tuple):
                if value and not 0 <= value[0] <= value[1]:
                    raise ValueError(f"{each.name} is not a range: {value}")
            elif not 0.0 <= value <= 1.0:
                raise ValueError(f"{each.name} is not a probability: {value}")
        on = [fault for fault in PUT_FAULTS if getattr(self, fault)]
        totals: list[float] = [*accumulate(getattr(self, fault) for fault in on)]
        if totals and totals[-1] > 1.0:
            raise ValueError(f"the faults of a put have a probability of {totals[-1]} together")
        object.__setattr__(self, "thresholds", tuple(zip(totals, on, strict=True)))

    @classmethod
    def swarm(cls, random: Random) -> Self:
        """A mixture of its own for each seed, with about half of the kinds off."""

        def some(most: float) -> float:
            return 0.0 if random.random() < 0.5 else most * random.random() ** 2

        return cls(
            request_s=(0.0, 10 ** random.uniform(-3, 0)),
            answer_s=(0.0, 10 ** random.uniform(-3, 0)),
            slow=some(0.2),
            read_error=some(0.2),
            put_error=some(0.2),
            lost_answer=some(0.2),
            late_landing=some(0.2),
            late_s=(0.0, 10 ** random.uniform(-2, 1.5)),
            echoed_refusal=some(0.1),
            false_refusal=some(0.1),
            duplicate=some(0.1),
            abandoned_lands=random.random(),
        )


class FaultyStore:
    """See the module's docstring for what may go wrong and what may not."""

    def __init__(
        self,
        store: Store,
        faults: Faults | None = None,
        *,
        random: Random,
        name: str = "store",
        note: Callable[[str], None] | None = None,
    ) -> None:
        self.faults = faults or Faults()
        self.operations: list[StoreCall] = []
        self.crashed = False
        self._store = store
        self._random = random
        self._name = name
        self._note = note
        self._crash_number = 0
        self._crash_when: Literal["before", "after"] = "before"
        self._on_crash: Callable[[], None] | None = None
        self._resume_at = 0.0
        # A dictionary, because the order of a set is not repeatable on every loop.
        self._landings: dict[asyncio.Task[None], None] = {}

    @property
    def url(self) -> str:
        return self._store.url

    async def get(self, path: str) -> Blob:
        return await self._read("get", path, lambda: self._store.get(path))

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        return await self._read(
            "get_range", path, lambda: self._store.get_range(path, start, length)
        )

    async def head(self, path: str) -> Head:
        return await self._read("head", path, lambda: self._store.head(path))

    async def put_if_absent(self, path: str, data: bytes) -> str:
        def put() -> Awaitable[str]:
            return self._store.put_if_absent(path, data)

        return await self._write(_Write("put_if_absent", path, put, Unknown, Exists))

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        def put() -> Awaitable[str]:
            return self._store.put_if_match(path, data, etag)

        return await self._write(_Write("put_if_match", path, put, Unknown, Conflict))

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        async def rows() -> list[Listed]:
            return [row async for row in self._store.list(prefix, after)]

        for row in await self._read("list", prefix, rows):
            yield row

    async def delete_many(self, paths: Sequence[str]) -> None:
        every = [*paths]

        def delete() -> Awaitable[None]:
            return self._store.delete_many(every)

        def delete_some() -> Awaitable[None]:
            return self._store.delete_many(every[: self._random.randrange(len(every) + 1)])

        path = every[0] if every else ""
        await self._write(_Write("delete_many", path, delete, Unavailable, torn=delete_some))

    def pause(self, seconds: float) -> None:
        """Neither send a request nor hear an answer for so long."""
        self._resume_at = max(self._resume_at, asyncio.get_running_loop().time() + seconds)

    def crash_at(self, number: int, when: Literal["before", "after"] = "before") -> None:
        """Die at the operation of this number, before or after its effect."""
        self._crash_number = number
        self._crash_when = when

    def crash(self) -> None:
        """Die now."""
        if not self.crashed:
            self.crashed = True
            self._say("crashed")
            if self._on_crash is not None:
                self._on_crash()

    def on_crash(self, callback: Callable[[], None]) -> None:
        """What else dies with this process."""
        self._on_crash = callback

    async def settle(self) -> None:
        """Wait until every request that still travels has landed."""
        while self._landings:
            await asyncio.wait(list(self._landings))

    async def _read(self, name: str, path: str, effect: Callable[[], Awaitable[T]]) -> T:
        call = await self._send(name, path)
        await asyncio.sleep(self._travel_s(self.faults.request_s))
        self._stop_if_dead()

        async def carry_out() -> T:
            if self._random.random() < self.faults.read_error:
                raise Unavailable(f"{name} of {path} failed on purpose", path=path)
            return await effect()

        return await self._answer(call, carry_out())

    async def _write(self, write: _Write[T]) -> T:
        call = await self._send(write.name, write.path)
        fault = None if call.number == self._crash_number else self._draw_fault(write)
        try:
            await asyncio.sleep(self._travel_s(self.faults.request_s))
            self._stop_if_dead()
        except (asyncio.CancelledError, Crashed):
            if self._random.random() < self.faults.abandoned_lands:
                self._land_later(call, write.effect)
            raise
        return await self._answer(call, self._carry_out(call, write, fault), fault)

    async def _carry_out(self, call: StoreCall, write: _Write[T], fault: Fault | None) -> T:
        answer = write.lost
        if fault is None:
            return await write.effect()
        if fault == "duplicate":
            result = await write.effect()
            self._land_later(call, write.effect)
            return result
        if fault == "lost_answer":
            try:
                await (write.torn or write.effect)()
            except StratalogError as unheard:
                self._say(f"#{call.number} would have heard {unheard.kind}")
        elif fault == "late_landing":
            self._land_later(call, write.effect)
        elif fault == "echoed_refusal":
            await write.effect()
        if write.refused is not None and fault in REFUSALS:
            answer = write.refused
        raise answer(f"{call.name} of {call.path}: {fault} on purpose", path=call.path)

    async def _send(self, name: str, path: str) -> StoreCall:
        """The request leaves the process, if that is alive and not paused."""
        self._stop_if_dead()
        call = StoreCall(len(self.operations) + 1, name, path)
        self.operations.append(call)
        if self._resume_at:
            await self._wait_while_paused()
        if call.number == self._crash_number and self._crash_when == "before":
            self.crash()
        self._stop_if_dead()
        return call

    async def _answer(self, call: StoreCall, work: Awaitable[T], fault: Fault | None = None) -> T:
        try:
            result = await work
        except StratalogError as error:
            await self._hear(call, error.kind, fault)
            raise
        await self._hear(call, "ok", fault)
        return result

    async def _hear(self, call: StoreCall, outcome: str, fault: Fault | None) -> None:
        """The answer reaches the process, if that is still alive and when it is not paused."""
        cause = f" ({fault})" if fault is not None else ""
        self._say(f"#{call.number} {call.name} {call.path} {outcome}{cause}")
        if call.number == self._crash_number:
            self.crash()
        else:
            answer_s = self._travel_s(self.faults.answer_s)
            if answer_s:
                await asyncio.sleep(answer_s)
            if self._resume_at:
                await self._wait_while_paused()
        self._stop_if_dead()

    async def _wait_while_paused(self) -> None:
        loop = asyncio.get_running_loop()
        while (left := self._resume_at - loop.time()) > 0:  # noqa: ASYNC110 - may be prolonged
            await asyncio.sleep(left)

    def _land_later(self, call: StoreCall, effect: Callable[[], Awaitable[object]]) -> None:
        """Carry it out when it arrives. The network does not die with the process that sent it."""
        late_s = self._random.uniform(*self.faults.late_s)

        async def land() -> None:
            await asyncio.sleep(late_s)
            try:
                await effect()
            except StratalogError as refusal:
                self._say(f"#{call.number} arrived late: {refusal.kind}")
            else:
                self._say(f"#{call.number} landed late")

        task = asyncio.get_running_loop().create_task(land(), context=Context())
        self._landings[task] = None
        task.add_done_callback(lambda done: self._landings.pop(done, None))

    def _draw_fault(self, write: _Write[T]) -> Fault | None:
        if self.faults.thresholds:
            drawn = self._random.random()
            for threshold, fault in self.faults.thresholds:
                if drawn < threshold:
                    unconditional = write.refused is None
                    return None if unconditional and fault in REFUSALS else fault
        return None

    def _travel_s(self, usual: Range) -> float:
        faults = self.faults
        if faults.slow and self._random.random() < faults.slow:
            return self._random.uniform(*faults.slow_s)
        return self._random.uniform(*usual) if usual[1] else 0.0

    def _stop_if_dead(self) -> None:
        if self.crashed:
            raise Crashed(self._name)

    def _say(self, text: str) -> None:
        if self._note is not None:
            self._note(f"{self._name} {text}")
