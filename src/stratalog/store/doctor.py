"""A thorough examination of a store: every promise tried, the conditions under real races.

Sequential tests pass on some stores that lose updates, so writers race here. The report says of
each promise whether it held, with evidence, and what it would mean for a log if it did not; and it
measures what the store can do. Everything is written below ``doctor/`` and removed afterwards.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from stratalog.errors import (
    Conflict,
    Denied,
    Exists,
    NotFound,
    StratalogError,
    Unavailable,
    Unknown,
)
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store.prefixed import PrefixedStore
from stratalog.store.protocol import Store

Status = Literal["held", "broken", "not-checked"]
Progress = Callable[[str, int, int], None]

CHECK_S_MAX = 20.0
RATE_S_MAX = 3.0
RATE_PUTS_MAX = 200
LARGE_BYTES = 1 << 20
SMALL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Check:
    """One promise. ``detail`` is the evidence, ``what_it_means`` the consequence for a log."""

    name: str
    status: Status
    detail: str
    what_it_means: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """One figure, over ``samples`` requests."""

    name: str
    value: float
    unit: str
    samples: int


@dataclass(frozen=True, slots=True)
class Report:
    """What was found about the store at ``url``."""

    url: str
    checks: tuple[Check, ...]
    measurements: tuple[Measurement, ...]

    @property
    def held(self) -> bool:
        """Whether a log is safe here: everything held; being unable to delete is no danger."""
        return all(
            check.status == "held" or (check.status == "not-checked" and check.name == "delete")
            for check in self.checks
        )


class _Broken(Exception):
    """A promise did not hold; the text is the evidence."""


Attempt = Callable[..., Awaitable[str]]

_PROMISES: list[tuple[str, Attempt, str]] = []
"""What is tried, in this order: a name, how, and what it means for a log if it does not hold."""


def _promise(name: str, what_it_means: str) -> Callable[[Attempt], Attempt]:
    def noted(attempt: Attempt) -> Attempt:
        _PROMISES.append((name, attempt, what_it_means))
        return attempt

    return noted


@dataclass(slots=True)
class _Examination:
    """What the checks share. Each check has names of its own."""

    store: Store
    runtime: Runtime
    writers: int
    rounds: int

    def content(self) -> bytes:
        """Bytes that nobody has written before."""
        return self.runtime.new_id(32).encode()

    def deadline(self) -> float:
        return asyncio.get_running_loop().time() + CHECK_S_MAX

    @_promise("create-race", "Two writers could both believe that they created the log.")
    async def one_creator_wins(self) -> str:
        deadline, made = self.deadline(), 0
        while made < self.rounds and asyncio.get_running_loop().time() < deadline:
            path = f"create/{made}"
            contents = [self.content() for _ in range(self.writers)]
            answers = await asyncio.gather(*(self._created(path, data) for data in contents))
            stored = (await self.store.get(path)).data
            winners = [data for data, won in zip(contents, answers, strict=True) if won]
            if len(winners) > 1:
                raise _Broken(f"{len(winners)} of {self.writers} creators won in round {made}")
            if winners and winners[0] != stored:
                raise _Broken(f"the winner of round {made} was overwritten")
            if stored not in contents:
                raise _Broken(f"round {made} left bytes that nobody wrote")
            made += 1
        return f"{made} races of {self.writers} creators, each with one winner"

    async def _created(self, path: str, data: bytes) -> bool:
        await asyncio.sleep(0)
        try:
            await self.store.put_if_absent(path, data)
        except (Exists, Unknown):
            return False
        return True

    @_promise("lost-update", "Acknowledged records would disappear when two writers meet.")
    async def no_update_is_lost(self) -> str:
        path, deadline = "counter", self.deadline()
        await self.store.put_if_absent(path, _encode({"write_id": self.runtime.new_id()}))
        names = [f"writer-{index}" for index in range(self.writers)]
        acknowledged = await asyncio.gather(*(self._increments(path, n, deadline) for n in names))
        stored = json.loads((await self.store.get(path)).data)
        total = sum(acknowledged)
        kept = sum(stored.get(name, 0) for name in names)
        if not total:
            raise _Broken(f"no update was accepted in {CHECK_S_MAX:.0f} s")
        if kept < total:
            raise _Broken(f"{total - kept} of {total} acknowledged updates were lost")
        return f"{total} updates by {self.writers} concurrent writers, none lost"

    async def _increments(self, path: str, name: str, deadline: float) -> int:
        """Count up in a shared object. What a refusal or a lost answer means is read back."""
        done = 0
        unsettled: int | None = None
        while done < self.rounds and asyncio.get_running_loop().time() < deadline:
            blob = await self.store.get(path)
            counts = json.loads(blob.data)
            mine = counts.get(name, 0)
            if unsettled is not None and mine > unsettled:
                unsettled, done = None, done + 1
                continue
            counts[name] = mine + 1
            counts["write_id"] = self.runtime.new_id()
            await asyncio.sleep(0)
            try:
                await self.store.put_if_match(path, _encode(counts), blob.etag)
            except (Conflict, Unknown):
                unsettled = mine
                continue
            unsettled, done = None, done + 1
        return done

    @_promise(
        "stale-match", "A writer that was overtaken would overwrite the records of its successor."
    )
    async def a_stale_match_is_refused(self) -> str:
        stale = await self.store.put_if_absent("stale", self.content())
        data = self.content()
        await self.store.put_if_match("stale", data, stale)
        with contextlib.suppress(Conflict):
            await self.store.put_if_match("stale", self.content(), stale)
            raise _Broken("a put with an old etag was accepted")
        if (await self.store.get("stale")).data != data:
            raise _Broken("a put with an old etag was refused, and changed the object")
        return "a put with an old etag was refused and changed nothing"

    @_promise("match-missing", "A late write could bring a destroyed log back to life.")
    async def a_match_on_nothing_is_refused(self) -> str:
        etag = await self.store.put_if_absent("match/there", self.content())
        with contextlib.suppress(Conflict):
            await self.store.put_if_match("match/missing", self.content(), etag)
            raise _Broken("a put with an etag created an object that was missing")
        with contextlib.suppress(NotFound):
            await self.store.get("match/missing")
            raise _Broken("a refused put created the object")
        return "a put with an etag did not create a missing object"

    @_promise(
        "read-after-write", "A reader could miss records that were acknowledged before it asked."
    )
    async def a_read_sees_the_last_write(self) -> str:
        etag = await self.store.put_if_absent("read", self.content())
        for _ in range(self.rounds):
            data = self.content()
            etag = await self.store.put_if_match("read", data, etag)
            if (await self.store.get("read")).data != data:
                raise _Broken("a read after a write gave older bytes")
        return f"{self.rounds} reads after writes, all of them current"

    @_promise("list-after-put", "Collection could miss a cursor and delete what it protects.")
    async def a_listing_sees_the_last_write(self) -> str:
        for index in range(self.rounds):
            path = f"list/{index:04}"
            await self.store.put_if_absent(path, self.content())
            if [row.path async for row in self.store.list(path)] != [path]:
                raise _Broken("an object was not in the listing right after it was put")
        return f"{self.rounds} objects were listed right after they were put"

    @_promise("list-order", "Listings that resume in the middle would miss objects.")
    async def a_listing_is_in_order(self) -> str:
        paths = ["order/a/x", "order/a-b", "order/a.b", "order/a0", "order/B", "order/a/b/c"]
        for path in paths:
            await self.store.put_if_absent(path, b"")
        found = [row.path async for row in self.store.list("order/")]
        if found != sorted(paths):
            raise _Broken(f"listed as {', '.join(found)}")
        rest = [row.path async for row in self.store.list("order/", "order/a.b")]
        if rest != [path for path in sorted(paths) if path > "order/a.b"]:
            raise _Broken(f"listed after order/a.b: {', '.join(rest)}")
        return "paths came in byte order, also from the middle"

    @_promise("delete", "Space would not be given back.")
    async def a_deleted_object_is_gone(self) -> str:
        await self.store.put_if_absent("delete/x", self.content())
        await self.store.delete_many(["delete/x", "delete/never-there"])
        with contextlib.suppress(NotFound):
            await self.store.get("delete/x")
            raise _Broken("an object was readable after it was deleted")
        if [row.path async for row in self.store.list("delete/")]:
            raise _Broken("an object was listed after it was deleted")
        return "an object was gone once deleted, and deleting a missing one was no error"

    @_promise("range", "Reading parts of objects would give wrong bytes.")
    async def a_range_is_exact(self) -> str:
        data = bytes(index % 251 for index in range(SMALL_BYTES))
        await self.store.put_if_absent("range", data)
        for start, length in ((0, 1), (100, 1000), (SMALL_BYTES - 7, 7)):
            if await self.store.get_range("range", start, length) != data[start : start + length]:
                raise _Broken(f"bytes {start}+{length} were not those that were written")
        return "parts of an object were read exactly"

    @_promise("etag", "A writer could not replace the version that it has read.")
    async def an_etag_is_the_same_everywhere(self) -> str:
        put = await self.store.put_if_absent("etag", self.content())
        put = await self.store.put_if_match("etag", self.content(), put)
        got = (await self.store.get("etag")).etag
        head = (await self.store.head("etag")).etag
        if not put == got == head:
            raise _Broken(f"put answered {put}, get {got}, head {head}")
        return "put, get and head gave one etag"

    @_promise("large-object", "Fragments would come back damaged.")
    async def a_large_object_is_whole(self) -> str:
        data = self.content() * (LARGE_BYTES // 32)
        await self.store.put_if_absent("large", data)
        if (await self.store.get("large")).data != data:
            raise _Broken("1 MiB came back changed")
        return "1 MiB came back as it was written"

    async def measure(self) -> tuple[Measurement, ...]:
        found = [await self._rate()]
        for label, size, samples in (("4 kB", SMALL_BYTES, 20), ("1 MiB", LARGE_BYTES, 5)):
            puts, gets = [], []
            for index in range(samples):
                path, data = f"measure/{size}/{index}", self.content() * (size // 32)
                puts.append(await _elapsed_s(self.store.put_if_absent(path, data)))
                gets.append(await _elapsed_s(self.store.get(path)))
            for operation, times in (("put", puts), ("get", gets)):
                times.sort()
                for name, rank in (("p50", samples // 2), ("p99", samples - 1)):
                    found.append(
                        Measurement(
                            f"{operation} {label} {name}", times[rank] * 1000, "ms", samples
                        )
                    )
        return tuple(found)

    async def _rate(self) -> Measurement:
        etag = await self.store.put_if_absent("rate", self.content())
        clock, done = asyncio.get_running_loop().time, 0
        started = clock()
        while done < RATE_PUTS_MAX and clock() - started < RATE_S_MAX:
            etag = await self.store.put_if_match("rate", self.content(), etag)
            done += 1
        elapsed_s = max(clock() - started, 1e-9)
        return Measurement("conditional puts on one name", done / elapsed_s, "1/s", done)


async def examine(
    store: Store,
    *,
    writers: int = 4,
    rounds: int = 25,
    progress: Progress | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Report:
    """Try every promise of the store. ``progress`` gets a name, how many are done, and of how many.

    Races stop after ``CHECK_S_MAX`` seconds each, since some servers take seconds to settle one.
    """
    private = PrefixedStore(store, f"doctor/{runtime.new_id()}")
    examination = _Examination(private, runtime, writers, rounds)
    steps = len(_PROMISES) + 1
    checks: list[Check] = []
    measurements: tuple[Measurement, ...] = ()
    tell = progress or (lambda _name, _done, _of: None)
    try:
        for done, (name, attempt, meaning) in enumerate(_PROMISES):
            tell(name, done, steps)
            status, detail = await _outcome(attempt(examination))
            checks.append(Check(name, status, detail, meaning))
        tell("measure", steps - 1, steps)
        with contextlib.suppress(StratalogError):
            measurements = await examination.measure()
        tell("done", steps, steps)
    finally:
        with contextlib.suppress(Denied, Unavailable):
            await private.delete_many([row.path async for row in private.list()])
    return Report(store.url, tuple(checks), measurements)


async def _outcome(attempt: Awaitable[str]) -> tuple[Status, str]:
    try:
        return "held", await attempt
    except _Broken as finding:
        return "broken", str(finding)
    except (Conflict, Exists, NotFound) as answer:
        return "broken", f"an answer that does not fit what was done: {answer}"
    except StratalogError as error:
        return "not-checked", f"{error.kind}: {error}"


async def _elapsed_s(call: Awaitable[object]) -> float:
    clock = asyncio.get_running_loop().time
    started = clock()
    await call
    return clock() - started


def _encode(counts: dict[str, object]) -> bytes:
    return json.dumps(counts).encode()
