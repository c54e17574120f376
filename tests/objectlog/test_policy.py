"""The policy of a log: set, read, removed; and the cursor that holds what it keeps."""

from __future__ import annotations

import asyncio
import json
import pickle
import uuid
from collections.abc import Awaitable, Callable

import pytest

import stratalog as sl
from objectlog.crashing import CrashPoint, run_until_crash, sides_of
from objectlog.crashing import Script as CrashScript
from objectlog.interleaving import interleave
from objectlog.whole_log import FakeClock, bodies_of, check_whole_log, run
from objectlog.wrapped_stores import CountingStore, Puts
from stratalog.errors import Conflict, Corrupt, Exists, Invalid, NotFound
from stratalog.objectlog.branch.destroy_log import destroy
from stratalog.objectlog.check.scrub_log import scrub
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.stored.policy import POLICY_CURSOR, POLICY_PATH
from stratalog.store import MemoryStore, StoreLike
from stratalog.testing import History, StoreCall

AT_ONCE = sl.CollectorOptions(interval_s=0.0)
BY_KEY = sl.Policy(live=sl.Live(key="substr(body, 1, 1)"))
BY_QUERY = sl.Policy(live=sl.Live(sql="SELECT max(offset) FROM log"))
SMALL = sl.Policy(retain=sl.Retention(bytes=1))


async def filled(url: StoreLike, appends: int = 8) -> sl.Store:
    store = sl.open_store(url)
    async with sl.LogWriter.open(store, create=True) as log:
        for number in range(appends):
            await log.append(b"%d" % (number + 1))
    return store


async def held_from(store: StoreLike) -> int | None:
    try:
        return (await sl.CursorStore(store).load(POLICY_CURSOR)).offset
    except NotFound:
        return None


async def policy_of(store: StoreLike) -> sl.Policy | None:
    try:
        return await sl.PolicyStore(store).load()
    except NotFound:
        return None


async def collect(store: StoreLike) -> int:
    return (await sl.collect(store, options=AT_ONCE)).first_offset


class TestWhatAPolicySays:
    def test_it_is_set_read_and_removed(self, store_url: str) -> None:
        async def main() -> None:
            store = await filled(store_url)
            policies = sl.PolicyStore(store, writer="ada")
            with pytest.raises(NotFound):
                await policies.load()
            await policies.set(BY_KEY)
            found = await policies.load()
            assert found.to_dict() == {"live": {"key": "substr(body, 1, 1)"}}
            assert (found.writer, found.format, found.judged) == ("ada", "1.1", None)
            await policies.set(SMALL)
            assert (await policies.load()).to_dict() == {"retain": {"bytes": 1}}
            await policies.remove()
            assert await policy_of(store) is None
            assert await held_from(store) is None
            with pytest.raises(NotFound):
                await policies.remove()
            await policies.set(BY_QUERY)
            assert await held_from(store) == 1
            assert (await scrub(store, options=sl.ScrubOptions(processes=0))).clean
            await check_whole_log(store)

        run(main())

    def test_there_is_none_without_a_log(self) -> None:
        with pytest.raises(NotFound, match="no log"):
            run(sl.PolicyStore(MemoryStore()).set(BY_KEY))

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda: sl.Live(),
            lambda: sl.Live(key="a", sql="b"),
            lambda: sl.Live(key=" "),
            lambda: sl.Live(key="x" * 100_001),
            lambda: sl.Live(sql="a", tombstone="b"),
            lambda: sl.Live(key="a", grace_s=1),
            lambda: sl.Live(key="a", tombstone="b", grace_s=-1),
            lambda: sl.Live(key="a", tombstone="b", grace_s=float("nan")),
            lambda: sl.Live(key=1),  # type: ignore[arg-type]
            lambda: sl.Retention(),
            lambda: sl.Retention(age_s=0),
            lambda: sl.Retention(age_s=1e11),
            lambda: sl.Retention(age_s=True),
            lambda: sl.Retention(bytes=0),
            lambda: sl.Retention(bytes=1.5),  # type: ignore[arg-type]
            lambda: sl.Thresholds(live_share_min=0),
            lambda: sl.Thresholds(live_share_min=1.01),
            lambda: sl.Thresholds(new_records_min=-1),
        ],
    )
    def test_what_is_no_rule_is_refused(self, wrong: Callable[[], object]) -> None:
        with pytest.raises(Invalid):
            wrong()

    @pytest.mark.parametrize(
        "useless", [sl.Policy(), sl.Policy(retain=SMALL.retain, thresholds=sl.Thresholds())]
    )
    def test_one_that_says_nothing_is_not_stored(self, useless: sl.Policy) -> None:
        async def main() -> None:
            store = await filled(MemoryStore())
            with pytest.raises(Invalid):
                await sl.PolicyStore(store).set(useless)
            assert await held_from(store) is None

        run(main())

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ('{"live": {"key": "a"}, "retian": {"age_s": 1}}', "retain"),
            ('{"live": {"key": "a", "tombstones": "b"}}', "tombstone"),
            ('{"retain": {"age": 1}}', "age_s"),
            ('{"live": {"key": "a"}, "judged": 7}', "Leave it out"),
            ('{"live": {"key": "a"}, "zzz": 7}', "It has live, retain, thresholds"),
        ],
    )
    def test_a_misspelt_field_is_refused_with_what_was_meant(self, text: str, told: str) -> None:
        with pytest.raises(Invalid) as refused:
            sl.Policy.from_text(text)
        assert told in refused.value.hint

    @pytest.mark.parametrize(
        "text",
        ["", "[]", "{}", '{"live": {}}', '{"retain": {"age_s": "30d"}}', "\udcff", "{" * 999],
    )
    def test_what_is_no_policy_is_refused(self, text: str) -> None:
        with pytest.raises(Invalid):
            sl.Policy.from_text(text.encode(errors="surrogatepass"))

    def test_what_was_set_can_be_set_again_from_its_text(self) -> None:
        policy = sl.Policy(
            live=sl.Live(key="k", tombstone="t", grace_s=5),
            retain=sl.Retention(age_s=60, bytes=1000),
            thresholds=sl.Thresholds(live_share_min=0.2, new_records_min=10),
        )
        assert sl.Policy.from_text(json.dumps(policy.to_dict())) == policy
        assert pickle.loads(pickle.dumps(policy)) == policy

    def test_fields_of_a_newer_version_are_kept(self) -> None:
        async def main() -> None:
            store = await filled(MemoryStore())
            strange = b'{"live":{"key":"k","collation":"x"},"write_id":"a","colour":[1, 2]}'
            await store.put_if_absent(POLICY_PATH, strange)
            policies = sl.PolicyStore(store)
            assert await policies.note_judged(await policies.load(), 5)
            stored = json.loads((await store.get(POLICY_PATH)).data)
            assert stored["live"] == {"key": "k", "collation": "x"}
            assert (stored["colour"], stored["judged"]) == ([1, 2], 5)
            await policies.set(BY_QUERY)
            stored = json.loads((await store.get(POLICY_PATH)).data)
            assert stored["colour"] == [1, 2]
            assert stored["live"] == {"sql": "SELECT max(offset) FROM log"}

        run(main())

    def test_damage_is_told_and_a_newer_format_is_refused(self) -> None:
        async def main() -> None:
            store = await filled(MemoryStore())
            await store.put_if_absent(POLICY_PATH, b'{"live":{"key":7}}')
            with pytest.raises(Corrupt) as damage:
                await sl.PolicyStore(store).load()
            assert damage.value.path == POLICY_PATH
            await store.delete_many([POLICY_PATH])
            await store.put_if_absent(POLICY_PATH, b'{"format":"2.0"}')
            with pytest.raises(Invalid, match="format"):
                await sl.PolicyStore(store).load()

        run(main())

    def test_when_a_rule_is_asked_again(self) -> None:
        judged = sl.Policy(live=BY_KEY.live, judged=50)
        assert sl.Policy(live=BY_KEY.live).is_due(1, 2)
        assert not sl.Policy(live=BY_KEY.live).is_due(1, 1)
        assert not judged.is_due(1, 50)
        assert judged.is_due(1, 51)
        assert not judged.is_due(60, 60), "all that was judged is gone"
        some = sl.Policy(live=BY_KEY.live, thresholds=sl.Thresholds(new_records_min=10), judged=50)
        assert not some.is_due(1, 59)
        assert some.is_due(1, 60)
        dying = sl.Policy(live=sl.Live(key="k", tombstone="t"), judged=50)
        assert dying.is_due(1, 50), "tombstones die by time alone"
        assert not SMALL.is_due(1, 100)

    def test_what_was_judged_is_noted_until_the_rule_changes(self) -> None:
        async def main() -> None:
            policies = sl.PolicyStore(await filled(MemoryStore()))
            old = await policies.set(BY_KEY)
            assert await policies.note_judged(old, 7)
            assert not await policies.note_judged(old, 8), "its witness is old"
            assert (await policies.set(BY_KEY)).judged == 7
            assert (await policies.set(BY_QUERY)).judged is None

        run(main())

    def test_a_sweep_leaves_it_and_destroying_takes_it(self) -> None:
        async def main() -> None:
            store = await filled(MemoryStore())
            await sl.PolicyStore(store).set(BY_KEY)
            await sweep(store)
            assert await policy_of(store) is not None
            await destroy(store)
            assert [row async for row in store.list()] == []

        run(main())


class TestTheCursor:
    def test_nothing_is_collected_that_the_policy_keeps(self, store_url: str) -> None:
        async def main() -> None:
            store = await filled(store_url)
            await sl.PolicyStore(store).set(BY_KEY)
            await sl.CursorStore(store).create("compaction", 9)
            assert await collect(store) == 1
            assert len(await bodies_of(store)) == 8
            await sl.PolicyStore(store).remove()
            assert await collect(store) == 9

        run(main())

    def test_a_new_policy_holds_what_an_earlier_one_let_go(self) -> None:
        async def main() -> None:
            store = await filled(MemoryStore())
            await sl.CursorStore(store).create("slow", 3)
            policies = sl.PolicyStore(store)
            kept = await policies.retain(await policies.set(SMALL))
            assert (kept.offset_before, kept.offset, kept.has_moved) == (1, 8, True)
            assert await collect(store) == 3, "collection waits for the slowest"
            await policies.set(BY_KEY)
            assert await held_from(store) == 3
            await (await sl.CursorStore(store).load("slow")).delete()
            assert await collect(store) == 3

        run(main())

    def test_it_is_made_again_if_somebody_deleted_it(self) -> None:
        async def main() -> None:
            store = await filled(MemoryStore())
            policies = sl.PolicyStore(store)
            await policies.set(BY_KEY)
            assert await policies.hold() == 1
            await (await sl.CursorStore(store).load(POLICY_CURSOR)).delete()
            assert await policies.hold() == 1
            assert await held_from(store) == 1
            await policies.remove()
            with pytest.raises(Conflict):
                await policies.hold()
            assert await held_from(store) is None

        run(main())

    def test_one_that_was_left_below_the_start_is_brought_back(self) -> None:
        async def main() -> None:
            store = await filled(MemoryStore())
            cursors = sl.CursorStore(store)
            left = await cursors.create(POLICY_CURSOR, 1)
            stored = await store.get("cursor/policy.json")
            await (await left.move(5)).delete()
            await cursors.create("compaction", 4)
            assert await collect(store) == 4
            grave = await store.get("cursor/policy.json")
            await store.put_if_match("cursor/policy.json", stored.data, grave.etag)
            await sl.PolicyStore(store).set(BY_KEY)
            assert await held_from(store) == 4

        run(main())

    def test_a_collection_under_way_is_not_overtaken(self) -> None:
        async def main() -> None:
            store = await filled(MemoryStore())
            await sl.CursorStore(store).create("compaction", 5)
            collector = sl.Collector(store, options=AT_ONCE)
            await collector.compute()
            with pytest.raises(Conflict, match="under way"):
                await sl.PolicyStore(store).set(BY_KEY)
            assert await policy_of(store) is None
            assert await held_from(store) is None
            await collector.publish()
            await sl.PolicyStore(store).set(BY_KEY)
            assert await held_from(store) == 5

        run(main())


class TestRetention:
    def test_by_age_what_is_older_goes_and_the_newest_fragment_stays(self) -> None:
        async def main() -> None:
            store, clock = MemoryStore(), FakeClock(1_000_000_000)
            for number in range(6):
                clock.time_us += 60_000_000
                async with sl.LogWriter.open(store, create=True, runtime=clock) as log:
                    await log.append_many([b"%d" % number] * 10)
            policies = sl.PolicyStore(store, runtime=clock)
            policy = await policies.set(sl.Policy(retain=sl.Retention(age_s=120)))
            kept = await policies.retain(policy)
            assert (kept.offset_before, kept.offset) == (1, 31), "exactly as old is not older"
            assert not (await policies.retain(policy)).has_moved
            assert await collect(store) == 31
            clock.time_us += 10**12
            assert (await policies.retain(policy)).offset == 51
            assert await collect(store) == 51
            assert len(await bodies_of(store)) == 10

        run(main())

    def test_by_size_the_oldest_go_until_the_rest_fits(self, store_url: str) -> None:
        async def main() -> None:
            store = await filled(store_url, 20)
            async with sl.LogReader.open(store) as reader:
                sizes = [each.num_bytes for each in await reader.scan()]
            policies = sl.PolicyStore(store)
            policy = await policies.set(sl.Policy(retain=sl.Retention(bytes=sum(sizes[-5:]))))
            assert not (await policies.retain(policy, by_size=False)).has_moved
            kept = await policies.retain(policy)
            assert (kept.offset, kept.num_bytes) == (16, sum(sizes[:-5]))
            assert await collect(store) == 16
            await check_whole_log(store)

        run(main())

    def test_it_waits_for_a_slower_cursor(self) -> None:
        async def main() -> None:
            store = await filled(MemoryStore())
            await sl.CursorStore(store).create("billing", 3)
            policies = sl.PolicyStore(store)
            await policies.retain(await policies.set(SMALL))
            assert await collect(store) == 3
            await (await sl.CursorStore(store).load("billing")).move(6)
            assert await collect(store) == 6

        run(main())

    def test_a_policy_that_was_changed_since_moves_nothing(self) -> None:
        async def main() -> None:
            store = await filled(MemoryStore())
            policies = sl.PolicyStore(store)
            old = await policies.set(SMALL)
            await policies.set(BY_KEY)
            with pytest.raises(Conflict):
                await policies.retain(old)
            assert await held_from(store) == 1
            await policies.remove()
            with pytest.raises(Conflict):
                await policies.retain(old)
            assert await held_from(store) is None

        run(main())

    def test_no_fragment_is_read(self) -> None:
        async def main() -> None:
            store = await filled(MemoryStore(), 40)
            counting = CountingStore(store)
            policies = sl.PolicyStore(counting)
            policy = await policies.set(SMALL)
            counting.reset()
            assert (await policies.retain(policy)).offset == 40
            assert not any(path.startswith("log/") for path in counting.paths_read)
            assert counting.reads <= 8

        run(main())


Script = Callable[[sl.Store], Awaitable[object]]


async def set_by_key(store: sl.Store, _: History | None = None) -> None:
    await sl.PolicyStore(store).set(BY_KEY)


async def remove(store: sl.Store, _: History | None = None) -> None:
    await sl.PolicyStore(store).remove()


async def hold(store: sl.Store) -> None:
    await sl.PolicyStore(store).hold()


async def retain(store: sl.Store) -> None:
    policies = sl.PolicyStore(store)
    await policies.retain(await policies.load())


async def nothing(_: sl.Store) -> None:
    return


async def set_small(store: sl.Store) -> None:
    await sl.PolicyStore(store).set(SMALL)


async def leave_the_cursor(store: sl.Store) -> None:
    """What a crash leaves: a cursor, and no policy."""
    await sl.CursorStore(store).create(POLICY_CURSOR, 1)


async def let_go(store: sl.Store) -> None:
    """A policy that has moved its cursor, while another one is slower."""
    await sl.CursorStore(store).create("slow", 2)
    await set_small(store)
    await retain(store)


class TestCrashes:
    """Before and after every operation: a policy that is there holds the whole log."""

    @pytest.mark.parametrize("before", [nothing, set_small, leave_the_cursor, let_go])
    @pytest.mark.parametrize("script", [set_by_key, remove])
    def test_at_every_operation(self, script: CrashScript, before: Script) -> None:
        if script is remove and before is nothing:
            return
        for point in sides_of(self.life(script, before, None)[1]):
            store, _ = self.life(script, before, point)
            try:
                run(self.look(store))
            except BaseException as error:
                error.add_note(f"crashed {point.when} operation {point.number}")
                raise

    async def look(self, store: sl.Store) -> None:
        policy, held = await policy_of(store), await held_from(store)
        if policy is not None:
            assert held is not None
        if policy is not None and policy.live is not None:
            assert held == 1
            await sl.CursorStore(store).create("compaction", 9)
            assert await collect(store) == 1
            assert len(await check_whole_log(store)) == 8
        if policy is not None or held is not None:
            await sl.PolicyStore(store).remove()
        assert await held_from(store) is None
        await sl.PolicyStore(store).set(BY_KEY)
        assert await held_from(store) == 1

    def life(
        self, script: CrashScript, before: Script, point: CrashPoint | None
    ) -> tuple[sl.Store, list[StoreCall]]:
        async def made() -> sl.Store:
            store = await filled(MemoryStore(uuid.uuid4().hex))
            await before(store)
            return store

        store = run(made())
        return store, run_until_crash(store, script, point, History(), Puts())


class TestRaces:
    """Two at once, their operations in every order that changes hands three times."""

    @pytest.mark.parametrize(
        "before",
        [
            nothing,
            pytest.param(set_small, marks=pytest.mark.slow),
            leave_the_cursor,
            pytest.param(let_go, marks=pytest.mark.slow),
        ],
    )
    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (set_by_key, remove),
            (remove, set_by_key),
            (set_by_key, set_small),
            (hold, remove),
            (remove, hold),
            (retain, remove),
        ],
    )
    def test_a_policy_never_stands_without_its_cursor(
        self, first: Script, second: Script, before: Script
    ) -> None:
        async def look(store: sl.Store, _: object) -> None:
            if await policy_of(store) is not None:
                assert await held_from(store) is not None

        everywhere(before, first, second, look)

    @pytest.mark.parametrize("before", [set_small, let_go])
    @pytest.mark.parametrize("is_first", [True, False])
    def test_one_that_was_set_is_not_undone_by_the_retention_of_an_earlier_one(
        self, before: Script, is_first: bool
    ) -> None:
        async def look(store: sl.Store, ended: tuple[object, object]) -> None:
            policy = await policy_of(store)
            if ended[0 if is_first else 1] is None:
                assert policy is not None
                assert policy.live is not None
                assert await held_from(store) == 1

        pair = (set_by_key, retain) if is_first else (retain, set_by_key)
        everywhere(before, pair[0], pair[1], look)

    @pytest.mark.slow
    @pytest.mark.parametrize("is_first", [True, False])
    def test_one_that_was_set_beside_a_collection_holds_all_that_is_left(
        self, is_first: bool
    ) -> None:
        async def due(store: sl.Store) -> None:
            await sl.CursorStore(store).create("compaction", 6)

        async def look(store: sl.Store, ended: tuple[object, object]) -> None:
            if ended[0 if is_first else 1] is not None:
                return
            async with sl.LogReader.open(store) as reader:
                first_offset = reader.first_offset
            assert await held_from(store) == first_offset
            await (await sl.CursorStore(store).load("compaction")).move(9)
            assert await collect(store) == first_offset
            await check_whole_log(store)

        async def collecting(store: sl.Store) -> None:
            await collect(store)

        pair = (set_by_key, collecting) if is_first else (collecting, set_by_key)
        everywhere(due, pair[0], pair[1], look)

    def test_of_two_who_create_it_at_once_one_is_told(self, store_url: str) -> None:
        async def main() -> None:
            store = await filled(store_url)
            ended = await asyncio.gather(
                *(sl.PolicyStore(store).set(each) for each in (BY_KEY, SMALL, BY_QUERY)),
                return_exceptions=True,
            )
            done = [each for each in ended if isinstance(each, sl.Policy)]
            assert len(done) >= 1
            assert all(isinstance(each, sl.Policy | Conflict | Exists) for each in ended)
            found = await policy_of(store)
            assert found is not None
            assert found.to_dict() in [each.to_dict() for each in done]
            assert await held_from(store) == 1

        run(main())


Look = Callable[[sl.Store, tuple[object, object]], Awaitable[None]]


def everywhere(before: Script, first: Script, second: Script, look: Look) -> None:
    """Try every number of operations of the first, and of the second in between."""

    async def one(steps: int, other_steps: int) -> bool:
        store = await filled(MemoryStore(uuid.uuid4().hex))
        await before(store)
        *ended, is_whole = await interleave(store, first, second, steps, other_steps)
        await look(store, (ended[0], ended[1]))
        return is_whole

    async def main() -> None:
        for steps in range(60):
            for other_steps in range(60):
                try:
                    is_whole = await one(steps, other_steps)
                except BaseException as error:
                    error.add_note(f"after {steps} and {other_steps} operations")
                    raise
                if not is_whole:
                    break
            if not other_steps:
                return
        raise AssertionError("it never ends")

    run(main(), 240)
