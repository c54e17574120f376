"""A document under every accident of a conditional put, and that its own rule would be missed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
import pytest

from stratalog.errors import (
    Conflict,
    Corrupt,
    Exists,
    NotFound,
    StratalogError,
    Unavailable,
    Unknown,
)
from stratalog.objectlog.stored import StoredObject, decode_document
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import (
    Document,
    MemoryStore,
    Store,
    Superseded,
    Version,
    create,
    read_version,
    read_versions,
)
from stratalog.store.cas import Patience
from stratalog.testing import Faults, Node, Simulation, simulate

PATH = "counter/a.json"
TIMEOUT_S = 5.0


class Counter(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """What the documents of these tests hold."""

    count: int = 0
    write_id: str | None = None
    ended: bool = False
    came_from: tuple[str, ...] = ()


def decode(data: bytes, path: str) -> Counter:
    return decode_document(Counter, data, path)


def document(store: Store, runtime: Runtime = DEFAULT_RUNTIME) -> Document[Counter]:
    return Document(
        store,
        PATH,
        decode,
        label="counter 'a'",
        runtime=runtime,
        timeout_s=TIMEOUT_S,
        is_tombstone=lambda counter: counter.ended,
        hint_if_missing="Create it.",
    )


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


async def new(store: Store, count: int = 0) -> Version[Counter]:
    return await document(store).create(lambda _grave: Counter(count=count))


async def end(store: Store) -> Version[Counter]:
    found = await document(store).load()
    return await document(store).put(found, Counter(ended=True))


def counted(up_to: int | None = None) -> Callable[[Counter], Awaitable[Counter | None]]:
    """Count one more, or do nothing from a number on."""

    async def count(counter: Counter) -> Counter | None:
        if up_to is not None and counter.count >= up_to:
            return None
        return msgspec.structs.replace(counter, count=counter.count + 1)

    return count


class Trick(MemoryStore):
    """Does something else once in place of the next conditional put."""

    def __init__(self, instead: Callable[[Trick, str, bytes, str], Awaitable[str]]) -> None:
        super().__init__("trick")
        self.instead: Callable[[Trick, str, bytes, str], Awaitable[str]] | None = instead
        self.puts = 0

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        self.puts += 1
        trick, self.instead = self.instead, None
        if trick is None:
            return await super().put_if_match(path, data, etag)
        return await trick(self, path, data, etag)


async def lost_answer(store: Trick, path: str, data: bytes, etag: str) -> str:
    await MemoryStore.put_if_match(store, path, data, etag)
    raise Unknown("the answer was lost")


async def echo(store: Trick, path: str, data: bytes, etag: str) -> str:
    """Something on the way sends the put twice and passes on the second answer."""
    await MemoryStore.put_if_match(store, path, data, etag)
    raise Conflict("the etag is another one")


async def lost_request(_store: Trick, _path: str, _data: bytes, _etag: str) -> str:
    raise Unknown("nobody knows")


async def lost_below_another(store: Trick, path: str, data: bytes, etag: str) -> str:
    """It lands, somebody else builds on it, and the answer is lost."""
    landed = await MemoryStore.put_if_match(store, path, data, etag)
    ours = decode(data, PATH)
    theirs = Counter(count=99, write_id="theirs", came_from=(*ours.came_from, "b"))
    await MemoryStore.put_if_match(store, path, theirs.to_json(), landed)
    raise Unknown("the answer was lost")


async def other_first(store: Trick, path: str, data: bytes, etag: str) -> str:
    theirs = Counter(count=99, write_id="theirs")
    await MemoryStore.put_if_match(store, path, theirs.to_json(), etag)
    return await MemoryStore.put_if_match(store, path, data, etag)


class TestStates:
    def test_a_document_that_was_never_created_is_not_there(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            assert await document(store).read() is None
            with pytest.raises(NotFound, match="there is no counter 'a'") as raised:
                await document(store).load()
            assert (raised.value.path, raised.value.hint) == (PATH, "Create it.")

        run(main())

    def test_what_was_created_is_loaded_and_not_created_again(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            made = await new(store, 7)
            assert await document(store).load() == made
            assert made.value.count == 7
            with pytest.raises(Exists, match="there is already a counter 'a'"):
                await new(store)

        run(main())

    def test_a_tombstone_is_not_there_and_is_replaced(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            await new(store, 7)
            grave = await end(store)
            assert await document(store).read() == grave
            with pytest.raises(NotFound):
                await document(store).load()
            graves: list[Counter | None] = []

            def make(before: Counter | None) -> Counter:
                graves.append(before)
                return Counter(count=8)

            made = await document(store).create(make)
            assert (made.value.count, graves) == (8, [None, grave.value])

        run(main())

    def test_whoever_creates_may_leave_a_tombstone_alone(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            await new(store)
            grave = await end(store)

            def make(before: Counter | None) -> Counter:
                if before is not None:
                    raise Exists("never again")
                return Counter()

            with pytest.raises(Exists, match="never again"):
                await document(store).create(make)
            assert await document(store).read() == grave

        run(main())

    def test_a_version_is_replaced_once(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            first = await new(store)
            second = await document(store).put(first, Counter(count=1))
            with pytest.raises(Conflict, match="the counter 'a' was changed since") as raised:
                await document(store).put(first, Counter(count=2))
            assert raised.value.hint == "Load it again, then decide."
            assert await document(store).load() == second

        run(main())


class TestAccidents:
    @pytest.mark.parametrize("trick", [lost_answer, echo, lost_request])
    def test_a_put_that_lands_is_known_whatever_was_answered(
        self, trick: Callable[[Trick, str, bytes, str], Awaitable[str]]
    ) -> None:
        async def main() -> None:
            store = Trick(trick)
            second = await document(store).put(await new(store), Counter(count=1))
            assert await document(store).load() == second
            assert second.value.count == 1
            assert store.puts == (2 if trick is lost_request else 1)

        run(main())

    def test_one_that_others_built_on_unseen_is_in_doubt(self) -> None:
        async def main() -> None:
            store = Trick(lost_below_another)
            with pytest.raises(Unknown, match="the counter 'a' was changed by others meanwhile"):
                await document(store).put(await new(store), Counter(count=1))

        run(main())

    def test_unless_it_has_left_a_trace(self) -> None:
        async def main() -> None:
            store = Trick(lost_below_another)
            newest = await document(store).put(
                await new(store),
                Counter(count=1, came_from=("a",)),
                is_ours=lambda found: "a" in found.came_from,
            )
            assert newest == await document(store).load()
            assert newest.value.came_from == ("a", "b")

        run(main())

    def test_one_that_was_refused_at_once_is_a_conflict_and_tells_what_is_there(self) -> None:
        async def main() -> None:
            store = Trick(other_first)
            settled = await document(store).try_put(await new(store), Counter(count=1))
            there = await document(store).read()
            assert settled == Superseded(there, answered=True)
            assert there is not None
            assert there.value.count == 99

        run(main())

    def test_a_creation_that_lands_late_is_refused_by_the_tombstone_of_the_next_one(self) -> None:
        """The request is under way while somebody else creates the document and deletes it."""

        async def main() -> None:
            store = MemoryStore()
            late = Counter(count=1, write_id="late").to_json()
            await new(store, 2)
            grave = await end(store)
            with pytest.raises(Exists):
                await create(store, PATH, late, Patience(DEFAULT_RUNTIME, TIMEOUT_S))
            assert await document(store).read() == grave

        run(main())


class TestChanges:
    def test_a_change_is_asked_again_after_a_refusal(self) -> None:
        async def main() -> None:
            store = Trick(other_first)
            await new(store)
            changed = await document(store).change(counted())
            assert changed.value.count == 100

        run(main())

    def test_a_change_that_has_nothing_to_do_puts_nothing(self) -> None:
        async def main() -> None:
            store = Trick(lost_answer)
            made = await new(store, 3)
            assert await document(store).change(counted(up_to=3)) == made
            assert store.puts == 0

        run(main())

    def test_a_change_begins_with_the_version_that_was_read(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            first = await new(store)
            await document(store).put(first, Counter(count=10))
            changed = await document(store).change(counted(), before=first)
            assert changed.value.count == 11

        run(main())

    def test_a_document_that_vanishes_under_a_change_is_missing(self) -> None:
        async def gone(store: Trick, path: str, _data: bytes, _etag: str) -> str:
            await store.delete_many([path])
            raise Conflict("it is gone")

        async def main() -> None:
            store = Trick(gone)
            await new(store)
            with pytest.raises(NotFound):
                await document(store).change(counted())

        run(main())


class TestVersions:
    def test_every_version_has_a_write_id_of_its_own(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            first = await new(store)
            second = await document(store).put(first, first.value)
            third = await document(store).put(second, Counter())
            ids = [each.value.write_id for each in (first, second, third)]
            assert None not in ids
            assert len(set(ids)) == 3
            assert len({first.etag, second.etag, third.etag}) == 3

        run(main())

    def test_a_value_that_brings_a_fresh_write_id_keeps_it(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            second = await document(store).put(await new(store), Counter(write_id="mine"))
            assert second.value.write_id == "mine"

        run(main())

    def test_a_runtime_that_draws_an_id_twice_is_a_defect(self) -> None:
        class Stuck(Runtime):
            def new_id(self, length: int = 12) -> str:
                return "0" * length

        async def main() -> None:
            stuck = document(MemoryStore(), Stuck())
            first = await stuck.create(lambda _grave: Counter())
            with pytest.raises(AssertionError, match="fresh write id"):
                await stuck.put(first, Counter(count=1))

        run(main())

    def test_without_fresh_write_ids_an_old_witness_would_be_good_again(self) -> None:
        """Why the rule is there: a put that was delayed lands over versions that it never saw."""

        async def late_put_lands(third_id: str) -> bool:
            store = MemoryStore()
            first = await document(store).put(None, Counter(write_id="1"))
            second = await document(store).put(first, Counter(count=1, write_id="2"))
            await document(store).put(second, Counter(write_id=third_id))
            settled = await document(store).try_put(first, Counter(count=-1))
            return isinstance(settled, Version)

        assert asyncio.run(late_put_lands("1"))
        assert not asyncio.run(late_put_lands("3"))


class TestLists:
    def test_documents_are_listed_with_their_names_and_strangers_are_not(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            for number in range(40):
                await store.put_if_absent(f"c/{number:02}.json", Counter(count=number).to_json())
            await store.put_if_absent("c/README", b"nothing of ours")
            found = await read_versions(store, "c/", decode, name_in)
            assert [name for name, _ in found] == [f"{number:02}" for number in range(40)]
            assert [version.value.count for _, version in found] == [*range(40)]
            assert found[3][1] == await read_version(store, "c/03.json", decode)

        run(main())

    def test_one_that_vanishes_meanwhile_is_passed_over(self) -> None:
        class Hasty(MemoryStore):
            async def get(self, path: str) -> Any:
                if path.endswith("1.json"):
                    raise NotFound("gone", path=path)
                return await super().get(path)

        async def main() -> None:
            store = Hasty()
            for number in range(3):
                await store.put_if_absent(f"c/{number}.json", Counter().to_json())
            found = await read_versions(store, "c/", decode, name_in)
            assert [name for name, _ in found] == ["0", "2"]

        run(main())

    def test_no_read_goes_on_after_one_has_failed(self) -> None:
        class Slow(MemoryStore):
            async def get(self, path: str) -> Any:
                if not path.endswith("0.json"):
                    await asyncio.sleep(60)
                return await super().get(path)

        async def main() -> None:
            store = Slow()
            await store.put_if_absent("c/0.json", b"{")
            await store.put_if_absent("c/1.json", Counter().to_json())
            with pytest.raises(Corrupt):
                await read_versions(store, "c/", decode, name_in)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        run(main())

    def test_a_damaged_one_is_raised_or_reported(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            await store.put_if_absent("c/0.json", Counter().to_json())
            await store.put_if_absent("c/1.json", b"{")
            with pytest.raises(Corrupt):
                await read_versions(store, "c/", decode, name_in)
            damages: list[StratalogError] = []
            found = await read_versions(store, "c/", decode, name_in, on_damage=damages.append)
            assert [name for name, _ in found] == ["0"]
            assert [damage.path for damage in damages] == ["c/1.json"]

        run(main())


def name_in(path: str) -> str | None:
    name = path.removeprefix("c/").removesuffix(".json")
    return name if name.isdigit() else None


class Lock(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """Held by the attempt that put itself in, or free."""

    holder: str | None = None
    write_id: str | None = None


class LockNamedByItsContent(Lock, frozen=True, kw_only=True, omit_defaults=True):
    """Planted: its write id follows from what it says, so that versions come back."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "write_id", self.holder or "free")


class Contenders:
    """Several processes that hold one lock in turn, under faults."""

    def __init__(self, kind: type[Lock]) -> None:
        self.kind = kind
        self.store = MemoryStore()
        self.holders: set[str] = set()
        self.refused: set[str] = set()

    def lock(self, node: Node) -> Document[Lock]:
        return Document(
            node.store,
            PATH,
            self.kind.from_json,
            label="lock",
            runtime=node.runtime,
            timeout_s=TIMEOUT_S,
        )

    async def work(self, node: Node) -> None:
        for number in range(6):
            await asyncio.sleep(node.runtime.random())
            try:
                await self.attempt(node, f"{node.name}-{number}")
            except (Unavailable, Unknown):
                continue

    async def attempt(self, node: Node, name: str) -> None:
        lock = self.lock(node)
        found = await lock.load()
        assert found.value.holder not in self.refused, "a put that was refused has landed"
        if found.value.holder is not None:
            if found.value.holder.startswith(f"{node.name}-"):
                await lock.change(self.free_of(found.value.holder), before=found)
            return
        settled = await lock.try_put(found, self.kind(holder=name))
        if isinstance(settled, Superseded):
            self.refused.add(name)
            return
        assert not self.holders, "two hold the lock"
        self.holders.add(name)
        await asyncio.sleep(node.runtime.random())
        self.holders.remove(name)
        await lock.change(self.free_of(name))

    def free_of(self, name: str) -> Callable[[Lock], Awaitable[Lock | None]]:
        async def free(found: Lock) -> Lock | None:
            return self.kind() if found.holder == name else None

        return free


def contend(seed: int, kind: type[Lock]) -> None:
    async def main(simulation: Simulation) -> None:
        contenders = Contenders(kind)
        await create(
            contenders.store, PATH, kind(write_id="free").to_json(), Patience(DEFAULT_RUNTIME, 1.0)
        )
        nodes = [
            simulation.node(name, contenders.store, Faults.swarm(simulation.random))
            for name in "abc"
        ]
        await asyncio.gather(*(node.spawn(contenders.work(node)) for node in nodes))
        await simulation.settle()

    simulate(main, seed=seed)


@pytest.mark.parametrize("seed", range(40))
def test_a_lock_is_held_by_one_at_a_time_and_nobody_who_was_refused_gets_it(seed: int) -> None:
    contend(seed, Lock)


def test_a_document_that_uses_its_write_ids_again_is_noticed() -> None:
    for seed in range(400):
        try:
            contend(seed, LockNamedByItsContent)
        except AssertionError:
            return
    pytest.fail("not noticed")
