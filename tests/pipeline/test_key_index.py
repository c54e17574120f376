"""The key index without Spark: what is judged, what is stored, and who wins."""

from __future__ import annotations

import asyncio

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stratalog as sl
from objectlog.whole_log import run
from objectlog.wrapped_stores import PassingStore
from stratalog.errors import Corrupt, Invalid, Unknown
from stratalog.indexset import IndexSet
from stratalog.objectlog.stored import FORMAT, load_manifest
from stratalog.pipeline.compact.apply_verdict import Judged, apply_verdict
from stratalog.pipeline.compact.key_index import (
    INDEX_PATH,
    NO_ROWS,
    ROWS,
    GoneSet,
    IndexNames,
    IndexPart,
    KeyIndex,
    decode_index,
    fetch_gone,
    fetch_part,
    load_index,
    replace_index,
    store_gone,
    store_part,
)
from stratalog.pipeline.compact.key_query import Answer
from stratalog.pipeline.compact.key_state import read_key_state
from stratalog.pipeline.compact.key_verdict import Verdict, by_offset, judge, without
from stratalog.pipeline.jobs.logs import LogRef
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import MemoryStore, Store
from stratalog.store.cas import Patience

AT_ONCE = sl.CompactOptions(interval_s=0.0)

GOLDEN = (
    b'{"up_to":42,"rule":"r","compacted":null,"epoch":7,"buckets":2,"parts":[{"path":'
    b'"live/0123456789ab-1.parquet","bucket":1,"rows":3,"num_bytes":99,"sha256":"s"}],'
    b'"format":"1.0","write_id":"w","gone":{"path":"live/0123456789ab-2.ixs","members":1,'
    b'"num_bytes":11}}'
)

Rows = list[tuple[bytes | None, int, int, bool]]

keys = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"\xff"]))
histories = st.lists(st.tuples(keys, st.integers(0, 9), st.booleans()), max_size=30)


def table_of(rows: Rows) -> pa.Table:
    if not rows:
        return NO_ROWS
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=ROWS)


def patience() -> Patience:
    return Patience(DEFAULT_RUNTIME, 1.0)


class TestJudging:
    @given(histories, st.integers(0, 40), st.integers(0, 9))
    def test_it_says_what_a_dictionary_says(
        self, history: list[tuple[bytes | None, int, bool]], up_to: int, expired_by_us: int
    ) -> None:
        rows: Rows = [
            (key, offset, time_us, gone)
            for offset, (key, time_us, gone) in enumerate(history, start=1)
        ]
        judged = [row for row in rows if row[1] < up_to]
        last = {key: row for row in judged if (key := row[0]) is not None}
        over = {key for key, row in last.items() if row[3] and row[2] <= expired_by_us}
        live = {row[1] for row in judged if row[0] is None}
        live |= {row[1] for key, row in last.items() if key not in over}
        must_drop = {row[1] for row in judged if row[0] in over and row != last[row[0]]}
        found = judge(table_of(rows), up_to=up_to, expired_by_us=expired_by_us)
        assert found.judged == len(judged)
        assert {*found.dead} == {row[1] for row in judged} - live
        assert {*found.must_drop} == must_drop
        assert found.must_drop <= found.dead

    @given(st.sets(st.integers(1, 50)), st.sets(st.integers(1, 50)), st.integers(1, 50))
    def test_rows_that_are_not_there_do_not_count(
        self, offsets: set[int], gone: set[int], first_offset: int
    ) -> None:
        shuffled = np.random.default_rng(1).permutation([*offsets]).tolist()
        rows = by_offset(NO_ROWS, table_of([(b"k", offset, 0, False) for offset in shuffled]))
        left = without(rows, IndexSet.of(gone), first_offset).column("offset").to_pylist()
        assert left == sorted(each for each in offsets - gone if each >= first_offset)


class TestStored:
    def test_it_is_stable_byte_for_byte(self) -> None:
        index = decode_index(GOLDEN)
        part = IndexPart(
            path="live/0123456789ab-1.parquet", bucket=1, rows=3, num_bytes=99, sha256="s"
        )
        gone = GoneSet(path="live/0123456789ab-2.ixs", members=1, num_bytes=11)
        assert (index.parts, index.gone, index.compacted) == ((part,), gone, None)
        assert index.to_json() == GOLDEN

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (b'"live/0123456789ab-1.parquet"', b'"log/x.parquet"'),
            (b'"live/0123456789ab-1.parquet"', b'"live/INDEX.json"'),
            (b'"live/0123456789ab-2.ixs"', b'"live/../x.ixs"'),
            (b'"buckets":2', b'"buckets":1'),
            (b'"buckets":2', b'"buckets":-1'),
            (b'"1.0"', b'"2.0"'),
        ],
    )
    def test_what_it_cannot_say(self, before: bytes, after: bytes) -> None:
        assert before in GOLDEN
        with pytest.raises((Corrupt, Invalid)):
            decode_index(GOLDEN.replace(before, after))

    def test_parts_and_sets_come_back_as_they_were(self, store_url: str) -> None:
        async def main() -> None:
            store, names = sl.open_store(store_url), IndexNames(DEFAULT_RUNTIME)
            rows = table_of([(b"k", 3, 5, True), (None, 7, 9, False)])
            part = await store_part(store, rows, 0, names, patience())
            assert (await fetch_part(store, part)).equals(rows)
            gone = await store_gone(store, IndexSet.of([3]), names, patience())
            assert await fetch_gone(store, gone) == IndexSet.of([3])
            assert await store_gone(store, IndexSet(), names, patience()) is None

        run(main())


def version(*parts: IndexPart) -> KeyIndex:
    return KeyIndex(
        up_to=5,
        rule="rule",
        compacted=None,
        epoch=0,
        buckets=1,
        parts=parts,
        gone=None,
        format=FORMAT,
        write_id=DEFAULT_RUNTIME.new_id(),
    )


async def uploaded(store: Store) -> IndexPart:
    return await store_part(store, NO_ROWS, 0, IndexNames(DEFAULT_RUNTIME), patience())


async def paths(store: Store) -> set[str]:
    return {row.path async for row in store.list("live/")}


class TestReplacing:
    def test_what_no_version_names_is_deleted(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            first, stray, second = [await uploaded(store) for _ in range(3)]
            assert await replace_index(store, version(first), None, patience())
            assert await paths(store) == {INDEX_PATH, first.path}
            second = await uploaded(store)
            await store.put_if_absent("live/README", b"not ours")
            index, etag = await load_index(store)
            assert index is not None
            assert index.parts == (first,)
            assert await replace_index(store, version(second), etag, patience())
            assert await paths(store) == {INDEX_PATH, second.path, "live/README"}
            assert stray.path != second.path

        run(main())

    @pytest.mark.parametrize("existed", [False, True])
    def test_of_two_runs_the_second_changes_nothing(self, existed: bool) -> None:
        async def main() -> None:
            store = MemoryStore()
            if existed:
                assert await replace_index(store, version(), None, patience())
            _, etag = await load_index(store)
            mine, theirs = await uploaded(store), await uploaded(store)
            assert await replace_index(store, version(theirs), etag, patience())
            assert mine.path not in await paths(store)
            assert not await replace_index(store, version(mine), etag, patience())
            index, _ = await load_index(store)
            assert index is not None
            assert index.parts == (theirs,)

        run(main())

    def test_a_run_that_begins_meanwhile_keeps_its_parts(self) -> None:
        """What it uploads comes after the listing, and its version will be accepted."""

        class Slow(PassingStore):
            async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
                landed = await super().put_if_match(path, data, etag)
                later.append(await uploaded(self.inner))
                return landed

        later: list[IndexPart] = []

        async def main() -> None:
            store = MemoryStore()
            assert await replace_index(store, version(), None, patience())
            _, etag = await load_index(store)
            assert await replace_index(Slow(store), version(), etag, patience())
            assert await paths(store) == {INDEX_PATH, later[0].path}

        run(main())

    def test_a_lost_answer_is_settled(self) -> None:
        class Forgetful(PassingStore):
            async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
                await super().put_if_match(path, data, etag)
                raise Unknown("no answer", path=path)

        async def main() -> None:
            store = MemoryStore()
            assert await replace_index(store, version(), None, patience())
            _, etag = await load_index(store)
            part = await uploaded(store)
            assert await replace_index(Forgetful(store), version(part), etag, patience())
            assert await paths(store) == {INDEX_PATH, part.path}

        run(main())


def test_an_index_is_that_of_this_log_as_it_is() -> None:
    async def main() -> None:
        store = MemoryStore()
        async with sl.LogWriter.open(store, create=True) as log:
            await log.append_many([b"x"] * 9)
        manifest, _ = await load_manifest(store)

        def made(**fields: object) -> KeyIndex:
            told: dict[str, object] = {
                "up_to": 10,
                "rule": "rule",
                "compacted": None,
                "epoch": manifest.sweep_epoch,
            }
            return KeyIndex(
                **(told | fields),  # type: ignore[arg-type]
                buckets=1,
                parts=(),
                gone=None,
                format=FORMAT,
                write_id=DEFAULT_RUNTIME.new_id(),
            )

        assert made().why_not(manifest, "rule") is None
        assert made(epoch=max(0, manifest.sweep_epoch - 9)).why_not(manifest, "rule") is None
        for wrong in (
            made(up_to=11),
            made(rule="another"),
            made(compacted="x"),
            made(epoch=manifest.sweep_epoch + 1),
            made(epoch=manifest.sweep_epoch - 2**20 if manifest.sweep_epoch > 2**20 else 2**40),
        ):
            assert wrong.why_not(manifest, "rule") is not None
        assert await replace_index(store, made(), None, patience())
        state = await read_key_state(store, LogRef(), "rule")
        assert state.index is not None
        assert state.start == 10
        full = await read_key_state(store, LogRef(), "rule", incremental=False)
        assert (full.index, full.start, full.etag) == (None, 1, state.etag)

    asyncio.run(main())


class TestAnErasureMeanwhile:
    """A run has read the keys of an older index. One is erased, and then its task stores them."""

    @pytest.mark.parametrize("something_is_dead", [True, False])
    def test_the_key_is_not_left(self, something_is_dead: bool) -> None:
        async def main() -> None:
            store = MemoryStore()
            async with sl.LogWriter.open(store, create=True) as log:
                for number in range(5):
                    await log.append_many([b"%d-%d" % (number, each) for each in range(10)])
            keys = [b"ann@example.org" if at == 3 else b"k%d" % max(at, 2) for at in range(1, 51)]
            rows = table_of([(key, at, 0, False) for at, key in enumerate(keys, 1)])
            epoch = (await load_manifest(store))[0].sweep_epoch
            index = KeyIndex(
                up_to=51,
                rule="r",
                compacted=None,
                epoch=epoch,
                buckets=1,
                parts=(await store_part(store, rows, 0, IndexNames(DEFAULT_RUNTIME), patience()),),
                gone=None,
                format=FORMAT,
                write_id=DEFAULT_RUNTIME.new_id(),
            )
            await replace_index(store, index, None, patience())
            state = await read_key_state(store, LogRef(None, store.url), "r")
            made = await sl.erase(store, IndexSet.of([3]), options=AT_ONCE)
            assert made is not None
            assert made.complete
            part = await store_part(store, rows, 0, IndexNames(DEFAULT_RUNTIME), patience())
            dead = IndexSet.of([1] if something_is_dead else [])
            answer = Answer(1, Verdict(50, dead, dead), 1, (part,), True)
            await apply_verdict(store, Judged(state, answer), "r", options=AT_ONCE)
            assert [row.path async for row in store.list("live/")] == []
            async with sl.LogReader.open(store) as reader:
                left = [record.offset async for record in reader.records(1)]
            assert left == [at for at in range(1, 51) if at != 3 and at not in dead]

        run(main())
