"""Compaction by key: what lives, what a run reads, and what it remembers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

import stratalog as sl
from pipeline.herds import store_of
from pipeline.spark_logs import collect_before, rows_in
from stratalog.errors import Corrupt, Invalid, NotFound
from stratalog.objectlog.stored.manifest import load_manifest
from stratalog.pipeline import ByKey, CompactedLog, compact_by_key, compact_logs_by_key
from stratalog.pipeline.compact import apply_verdict as applying
from stratalog.pipeline.compact import by_key as by_key_module
from stratalog.pipeline.compact.key_index import INDEX_PATH, KeyIndex, decode_index, load_index
from stratalog.runtime import Runtime
from stratalog.store import open_store
from stratalog.store.counted import Usage
from stratalog.testing import Row

KEY = "nullif(split_part(string(body), '=', 1), '')"
GONE = "string(body) LIKE '%=gone'"
STRICT = sl.CompactOptions(interval_s=0.0, live_share_min=1.0)
LAX = sl.CompactOptions(interval_s=0.0)
LEFT = {4: "c=1", 5: "b=2", 6: "a=3", 7: "end=1"}


class Crash(Exception):
    """A process ends here."""


@dataclass
class Clock(Runtime):
    """The present, and later."""

    ahead_s: float = 0.0

    def now_us(self) -> int:
        return super().now_us() + int(self.ahead_s * 1e6)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "log").as_uri()


def append(url: str, *fragments: Iterable[str]) -> None:
    """Append fragments of such bodies; the log is made if need be."""

    async def main() -> None:
        async with sl.LogWriter.open(url, create=True) as log:
            for bodies in fragments:
                await log.append_many([body.encode() for body in bodies])

    asyncio.run(main())


def bodies(url: str) -> dict[int, str]:
    rows = asyncio.run(rows_in(url))
    return {offset: body.decode() for offset, _, body in rows}


def index_of(url: str) -> KeyIndex:
    index, _ = asyncio.run(load_index(open_store(url)))
    assert index is not None
    return index


def objects_of(url: str) -> set[str]:
    async def main() -> set[str]:
        return {row.path async for row in open_store(url).list("live/")}

    return asyncio.run(main())


def check_index(url: str) -> None:
    """The index names what is there, and nothing else is there."""
    index = index_of(url)
    assert objects_of(url) == {*index.names, INDEX_PATH}


class TestWhatLives:
    def test_the_last_record_of_each_key(self, spark: SparkSession, url: str) -> None:
        append(url, ["a=1", "b=1"], ["a=2", "c=1"], ["b=2", "a=3"], ["d=1"])
        done = compact_by_key(spark, url, KEY, options=STRICT)
        assert bodies(url) == {4: "c=1", 5: "b=2", 6: "a=3", 7: "d=1"}
        assert (done.up_to, done.read, done.live, done.records) == (8, 7, 4, 3)
        check_index(url)

    def test_records_without_a_key(self, spark: SparkSession, url: str) -> None:
        append(url, ["=1", "a=1"], ["=2", "a=2"], ["=3"], ["end=1"])
        done = compact_by_key(spark, url, KEY, options=STRICT)
        assert bodies(url) == {1: "=1", 3: "=2", 4: "a=2", 5: "=3", 6: "end=1"}
        assert done.live == 5
        append(url, ["a=3", "=4"], ["end=2"])
        done = compact_by_key(spark, url, KEY, options=STRICT)
        assert bodies(url) == {1: "=1", 3: "=2", 5: "=3", 7: "a=3", 8: "=4", 9: "end=2"}
        assert (done.read, done.live) == (3, 6)

    def test_a_tombstone_until_its_grace_is_over(self, spark: SparkSession, url: str) -> None:
        rule = ByKey(KEY, GONE, grace_s=3600.0)
        append(url, ["a=1", "b=1"], ["a=gone"], ["end=1"])
        compact_by_key(spark, url, rule, options=STRICT)
        assert bodies(url) == {2: "b=1", 3: "a=gone", 4: "end=1"}
        append(url, ["end=2"])
        compact_by_key(spark, url, rule, options=STRICT, runtime=Clock(3500.0))
        assert 3 in bodies(url)
        compact_by_key(spark, url, rule, options=STRICT, runtime=Clock(3700.0))
        assert bodies(url) == {2: "b=1", 5: "end=2"}

    def test_a_key_that_comes_back_lives(self, spark: SparkSession, url: str) -> None:
        rule = ByKey(KEY, GONE, grace_s=0.0)
        append(url, ["a=1"], ["a=gone"], ["a=2"], ["end=1"])
        compact_by_key(spark, url, rule, options=STRICT)
        assert bodies(url) == {3: "a=2", 4: "end=1"}

    def test_an_old_value_goes_with_its_tombstone(self, spark: SparkSession, url: str) -> None:
        """Else it would come back: its fragment is mostly alive, that of the tombstone is not."""
        rule = ByKey(KEY, GONE, grace_s=0.0)
        full = [f"k{n}=1" for n in range(9)]
        append(url, ["a=old", *full], ["a=gone", "x=1", "x=2", "x=3"], ["x=4"], ["end=1"])
        compact_by_key(spark, url, rule, options=LAX)
        left = bodies(url)
        assert not [body for body in left.values() if body.startswith("a=")]
        assert len(left) == 11

    def test_an_old_value_goes_with_its_tombstone_in_a_later_run(
        self, spark: SparkSession, url: str
    ) -> None:
        rule = ByKey(KEY, GONE, grace_s=3600.0)
        full = [f"k{n}=1" for n in range(9)]
        append(url, ["a=old", *full], ["a=gone", "x=1", "x=2", "x=3"], ["x=4"])
        compact_by_key(spark, url, rule, options=LAX)
        append(url, ["x=5"], ["end=1"])
        done = compact_by_key(spark, url, rule, options=LAX, runtime=Clock(7200.0))
        assert done.read == 2
        assert not [body for body in bodies(url).values() if body.startswith("a=")]

    def test_only_what_is_before_a_position(self, spark: SparkSession, url: str) -> None:
        append(url, ["a=1"], ["a=2"], ["a=3"], ["a=4"], ["a=5"])
        done = compact_by_key(spark, url, KEY, up_to=3, options=STRICT)
        assert [*bodies(url)] == [2, 3, 4, 5]
        assert (done.up_to, done.read, done.live) == (3, 2, 1)
        done = compact_by_key(spark, url, KEY, options=STRICT)
        assert (done.up_to, done.read, done.live) == (6, 3, 1)
        assert [*bodies(url)] == [5]
        done = compact_by_key(spark, url, KEY, up_to=3, options=STRICT)
        assert (done.up_to, done.read, done.records) == (3, 0, 0)
        assert index_of(url).up_to == 6

    def test_a_log_without_records(self, spark: SparkSession, url: str) -> None:
        append(url)
        done = compact_by_key(spark, url, KEY, options=STRICT)
        assert (done.up_to, done.read, done.live, done.records) == (1, 0, 0, 0)
        assert objects_of(url) == set()

    @pytest.mark.parametrize(
        ("key", "expected"),
        [
            ("int(split_part(string(body), '=', 2)) % 2", [4, 5]),
            ("substring(body, 1, 1)", [4, 5]),
            ("offset % 3 = 0", [3, 5]),
            ("cast(offset % 2 as decimal(10, 2))", [4, 5]),
            ("date(timestamp)", [5]),
        ],
    )
    def test_keys_of_several_types(
        self, spark: SparkSession, url: str, key: str, expected: list[int]
    ) -> None:
        append(url, ["a=1"], ["b=2"], ["a=3"], ["b=4"], ["a=5"])
        compact_by_key(spark, url, key, options=STRICT)
        assert [*bodies(url)] == expected


class Model:
    """What a plain dictionary says of a log: for each key its records, oldest first."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.records: dict[str, list[tuple[int, str]]] = {}
        for offset, _, body in rows:
            key, _, value = body.decode().partition("=")
            self.records.setdefault(key, []).append((offset, value))

    def live(self) -> set[int]:
        found = {offset for offset, _ in self.records.pop("", [])}
        for several in self.records.values():
            offset, value = several[-1]
            if value != "gone":
                found.add(offset)
        return found

    def state(self) -> dict[str, str]:
        """What a reader has in the end."""
        last = {key: several[-1][1] for key, several in self.records.items() if key}
        return {key: value for key, value in last.items() if value != "gone"}


def some_fragments(random: Random, keys: int) -> list[list[str]]:
    def one() -> str:
        if random.random() < 0.1:
            return f"={random.random()}"
        value = "gone" if random.random() < 0.25 else random.random()
        return f"k{random.randrange(keys)}={value}"

    return [[one() for _ in range(random.randint(1, 12))] for _ in range(random.randint(1, 6))]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_incremental_runs_leave_what_full_ones_do(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And both what a dictionary says: nothing is lost, and nothing comes back."""
    random, now = Random(seed), Clock(3600.0)
    monkeypatch.setattr(
        "stratalog.pipeline.compact.key_query.UNIT_ROWS", random.choice([5, 20, 1000])
    )
    monkeypatch.setattr("stratalog.pipeline.compact.key_query.PARTS_PER_BUCKET_MAX", 3)
    urls = [(tmp_path / name).as_uri() for name in ("incremental", "full", "none")]
    rule = ByKey(KEY, GONE, grace_s=60.0)
    for round_ in range(5):
        fragments = some_fragments(random, keys=30)
        for url in urls:
            append(url, *fragments)
        options = random.choice([STRICT, LAX])
        state = Model(asyncio.run(rows_in(urls[2]))).state()
        done = [
            compact_by_key(spark, url, rule, incremental=incremental, options=options, runtime=now)
            for url, incremental in ((urls[0], True), (urls[1], False))
        ]
        left = [asyncio.run(rows_in(url)) for url in urls]
        assert [row[0] for row in left[0]] == [row[0] for row in left[1]], round_
        assert Model(left[0]).state() == state
        assert Model(left[0]).live() == Model(left[2]).live()
        assert (done[0].live, done[0].records) == (done[1].live, done[1].records)
        assert done[0].live == len(Model(left[2]).live())
        new = sum(map(len, fragments))
        assert done[0].read == new
        assert done[1].read >= new
        for url in urls[:2]:
            check_index(url)
    report = asyncio.run(sl.scrub(urls[0]))
    assert report.clean, report


class TestTheIndex:
    @pytest.fixture
    def filled(self, spark: SparkSession, url: str) -> str:
        """A log that was compacted, and has new records since."""
        append(url, ["a=1", "b=1"], ["a=2"], ["c=1"])
        compact_by_key(spark, url, KEY, options=STRICT)
        append(url, ["b=2", "a=3"], ["end=1"])
        return url

    def check(self, done: CompactedLog, url: str, read: int) -> None:
        assert done.read == read
        assert bodies(url) == LEFT
        check_index(url)

    def test_only_what_is_new_is_read(self, spark: SparkSession, filled: str) -> None:
        self.check(compact_by_key(spark, filled, KEY, options=STRICT), filled, read=3)
        assert compact_by_key(spark, filled, KEY, options=STRICT).read == 0

    def test_fragments_of_the_past_are_not_opened(self, spark: SparkSession, url: str) -> None:
        append(url, ["a=1", "b=1"], ["c=1"], ["d=1"])
        compact_by_key(spark, url, KEY, options=LAX)
        manifest, _ = asyncio.run(load_manifest(open_store(url)))
        folder = Path(url.removeprefix("file://"))
        (folder / manifest.fragments[1].path).rename(folder / "elsewhere")
        append(url, ["e=1"])
        assert compact_by_key(spark, url, KEY, options=LAX).read == 1
        (folder / "elsewhere").rename(folder / manifest.fragments[1].path)

    def test_everything_is_read_if_asked_for(self, spark: SparkSession, filled: str) -> None:
        done = compact_by_key(spark, filled, KEY, incremental=False, options=STRICT)
        self.check(done, filled, read=6)

    def test_nothing_is_stored_if_nothing_has_changed(
        self, spark: SparkSession, filled: str
    ) -> None:
        compact_by_key(spark, filled, KEY, options=STRICT)
        before = index_of(filled)
        compact_by_key(spark, filled, KEY, options=STRICT)
        assert index_of(filled) == before

    def test_another_rule_reads_everything(self, spark: SparkSession, filled: str) -> None:
        done = compact_by_key(spark, filled, KEY, tombstone_sql=GONE, options=STRICT)
        self.check(done, filled, read=6)
        done = compact_by_key(spark, filled, KEY, tombstone_sql=GONE, grace_s=7, options=STRICT)
        assert done.read == 0

    @pytest.mark.parametrize(
        "damage",
        [
            lambda folder: (folder / "INDEX.json").unlink(),
            lambda folder: (folder / "INDEX.json").write_bytes(b"{"),
            lambda folder: rewrite(folder, format="9.0"),
            lambda folder: rewrite(folder, buckets=0),
            lambda folder: rewrite(folder, epoch=0),
            lambda folder: rewrite(folder, up_to=99),
            lambda folder: rewrite(folder, parts=[{**part(folder), "path": "log/x"}]),
            lambda folder: (folder.parent / part(folder)["path"]).unlink(),
            lambda folder: (folder.parent / part(folder)["path"]).write_bytes(b"x"),
            lambda folder: [each.unlink() for each in folder.glob("*.ixs")],
            lambda folder: [each.write_bytes(b"x") for each in folder.glob("*.ixs")],
        ],
        ids=[
            "missing",
            "broken",
            "newer",
            "no buckets",
            "another log",
            "too far",
            "stranger",
            "no part",
            "broken part",
            "no set",
            "broken set",
        ],
    )
    def test_what_cannot_be_used_is_made_anew(
        self, spark: SparkSession, filled: str, damage: object
    ) -> None:
        assert callable(damage)
        assert objects_of(filled)
        damage(Path(filled.removeprefix("file://")) / "live")
        self.check(compact_by_key(spark, filled, KEY, options=STRICT), filled, read=6)
        assert compact_by_key(spark, filled, KEY, options=STRICT).read == 0

    def test_a_crash_after_the_compaction(
        self, spark: SparkSession, filled: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def crash(*_: object) -> None:
            raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(applying, "_remember", crash)
            with pytest.raises(Crash):
                compact_by_key(spark, filled, KEY, options=STRICT)
        assert bodies(filled) == LEFT
        append(filled, ["a=4"], ["end=2"])
        done = compact_by_key(spark, filled, KEY, options=STRICT)
        assert done.read == 6
        assert bodies(filled) == {4: "c=1", 5: "b=2", 8: "a=4", 9: "end=2"}
        check_index(filled)

    def test_a_crash_before_the_compaction(
        self, spark: SparkSession, filled: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def crash(*_: object, **__: object) -> None:
            raise Crash

        before = objects_of(filled)
        with monkeypatch.context() as patch:
            patch.setattr(by_key_module, "apply_verdict", crash)
            with pytest.raises(Crash):
                compact_by_key(spark, filled, KEY, options=STRICT)
        assert objects_of(filled) > before
        self.check(compact_by_key(spark, filled, KEY, options=STRICT), filled, read=3)

    def test_records_that_others_dropped(self, spark: SparkSession, filled: str) -> None:
        """What the index calls the last of its key may not be there any more."""
        live = sl.IndexSet.of([4, 5, 7])
        asyncio.run(sl.compact(filled, live, up_to=7, options=STRICT))
        done = compact_by_key(spark, filled, KEY, options=STRICT)
        assert done.read == 3
        assert bodies(filled) == {4: "c=1", 5: "b=2", 7: "end=1"}
        check_index(filled)

    def test_of_two_runs_one_stores_its_index(
        self, spark: SparkSession, filled: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settle = applying.apply_verdict
        inner: list[CompactedLog] = []

        async def overtaken(*args: object, **kwargs: object) -> CompactedLog:
            if not inner:
                monkeypatch.setattr(by_key_module, "apply_verdict", settle)
                run = asyncio.to_thread(compact_by_key, spark, filled, KEY, options=STRICT)
                inner.append(await run)
            return await settle(*args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(by_key_module, "apply_verdict", overtaken)
        done = compact_by_key(spark, filled, KEY, options=STRICT)
        assert inner[0].records == 2
        assert done.records == 0
        assert bodies(filled) == LEFT
        assert compact_by_key(spark, filled, KEY, options=STRICT).read == 0
        check_index(filled)

    def test_what_was_collected_is_forgotten(self, spark: SparkSession, url: str) -> None:
        append(url, ["a=1"], ["b=1"], ["c=1"], ["d=1"])
        compact_by_key(spark, url, KEY, options=STRICT)
        collect_before(url, 3)
        append(url, ["c=2"], ["end=1"])
        done = compact_by_key(spark, url, KEY, options=STRICT)
        assert (done.read, done.live) == (2, 3)
        assert bodies(url) == {4: "d=1", 5: "c=2", 6: "end=1"}
        collect_before(url, 6)
        append(url, ["f=1"])
        done = compact_by_key(spark, url, KEY, options=STRICT)
        assert (done.read, done.live) == (1, 2)

    def test_more_than_the_index_knows_was_collected(self, spark: SparkSession, url: str) -> None:
        append(url, ["a=1"], ["b=1"])
        compact_by_key(spark, url, KEY, options=STRICT)
        append(url, ["a=2"], ["b=2"], ["a=3"], ["end=1"])
        collect_before(url, 5)
        done = compact_by_key(spark, url, KEY, options=STRICT)
        assert (done.read, done.live) == (2, 2)

    def test_a_fork_has_an_index_of_its_own(
        self, spark: SparkSession, filled: str, tmp_path: Path
    ) -> None:
        fork = (tmp_path / "fork").as_uri()
        asyncio.run(sl.fork(filled, fork))
        append(fork, ["c=2"], ["end=2"])
        done = compact_by_key(spark, fork, KEY, options=STRICT)
        assert done.read == 8
        assert bodies(fork) == {5: "b=2", 6: "a=3", 8: "c=2", 9: "end=2"}
        append(fork, ["c=3"], ["end=3"])
        assert compact_by_key(spark, fork, KEY, options=STRICT).read == 2
        self.check(compact_by_key(spark, filled, KEY, options=STRICT), filled, read=3)

    def test_it_is_the_logs_own(self, spark: SparkSession, filled: str) -> None:
        compact_by_key(spark, filled, KEY, options=STRICT)
        swept = asyncio.run(sl.sweep(filled))
        assert (swept.deleted.objects, swept.unknown.objects) == (0, 0)
        assert compact_by_key(spark, filled, KEY, options=STRICT).read == 0
        asyncio.run(sl.destroy(filled))
        assert objects_of(filled) == set()


def rewrite(folder: Path, **fields: object) -> None:
    """Change fields of the stored index."""
    stored = json.loads((folder / "INDEX.json").read_bytes())
    (folder / "INDEX.json").write_text(json.dumps(stored | fields))


def part(folder: Path) -> dict[str, str]:
    parts: list[dict[str, str]] = json.loads((folder / "INDEX.json").read_bytes())["parts"]
    return parts[0]


@pytest.mark.parametrize(
    ("key", "tombstone", "message"),
    [
        ("nothing", None, "the key cannot be evaluated"),
        ("split(", None, "the key cannot be evaluated"),
        ("body, offset", None, "the key cannot be evaluated"),
        ("max(offset)", None, "the key cannot be evaluated"),
        ("explode(array(1, 2))", None, "the key cannot be evaluated"),
        ("struct(offset)", None, "is not exact"),
        ("timestamp", None, "type timestamp is not exact"),
        ("double(offset)", None, "type double is not exact"),
        ("'x' COLLATE UTF8_LCASE", None, "is not exact"),
        ("offset", "nothing", "the tombstone cannot be evaluated"),
        ("offset", "offset", "truth value, not bigint"),
        (" ", None, "a key is an expression"),
    ],
)
def test_a_rule_that_says_nothing(
    spark: SparkSession, url: str, key: str, tombstone: str | None, message: str
) -> None:
    append(url, ["a=1"], ["a=2"], ["a=3"])
    with pytest.raises(Invalid, match=message) as caught:
        compact_by_key(spark, url, key, tombstone_sql=tombstone, options=STRICT)
    assert caught.value.hint
    assert len(bodies(url)) == 3


def test_a_record_that_does_not_fit_the_rule(spark: SparkSession, url: str) -> None:
    append(url, ["1"], ["2"], ["x"], ["3"])
    with pytest.raises(Invalid, match="does not fit the rule"):
        compact_by_key(spark, url, "int(string(body))", options=STRICT)
    assert objects_of(url) == set()
    assert compact_by_key(spark, url, "try_cast(string(body) AS int)", options=STRICT).live == 4


def test_a_rule_is_given_once(spark: SparkSession, url: str) -> None:
    with pytest.raises(Invalid, match="says itself"):
        compact_by_key(spark, url, ByKey(KEY), tombstone_sql=GONE)


@dataclass
class HerdOf:
    """A herd with such logs."""

    root: str
    ids: dict[str, str] = field(default_factory=dict)

    def append(self, **logs: Sequence[Sequence[str]]) -> None:
        async def main() -> None:
            async with sl.Herd.open(self.root, server="test") as herd:
                for name, fragments in logs.items():
                    log = await herd.create(name, exist_ok=True)
                    self.ids[name] = await log.id()
                    for several in fragments:
                        await log.append_many([body.encode() for body in several])

        asyncio.run(main())

    def bodies(self, name: str) -> list[str]:
        rows = asyncio.run(rows_in(store_of(self.root, name)))
        return [body.decode() for _, _, body in rows]


class TestManyLogs:
    @pytest.fixture
    def herd(self, tmp_path: Path) -> HerdOf:
        return HerdOf(str(tmp_path / "herd"))

    def test_each_from_where_it_was(self, spark: SparkSession, herd: HerdOf) -> None:
        herd.append(
            one=[["a=1", "b=1"], ["a=2"], ["end=1"]], two=[["a=9"], ["a=8"], ["a=7"]], three=[]
        )
        ids = [*herd.ids.values()]
        done = compact_logs_by_key(spark, herd.root, ByKey(KEY), log_ids=ids, options=STRICT)
        assert (done.looked_at, done.records, done.troubles, done.gone) == (3, 3, (), 0)
        assert {each.log: each.read for each in done.logs} == {"one": 4, "two": 3, "three": 0}
        assert herd.bodies("one") == ["b=1", "a=2", "end=1"]
        assert herd.bodies("two") == ["a=7"]
        herd.append(one=[["b=2"], ["end=2"]], three=[["a=1"], ["a=2"]])
        done = compact_logs_by_key(spark, herd.root, ByKey(KEY), log_ids=ids, options=STRICT)
        assert {each.log: each.read for each in done.logs} == {"one": 2, "two": 0, "three": 2}
        assert {each.log: each.live for each in done.logs} == {"one": 3, "two": 1, "three": 1}
        assert herd.bodies("one") == ["a=2", "b=2", "end=2"]
        assert herd.bodies("three") == ["a=2"]

    def test_one_that_fails_does_not_stop_the_others(
        self, spark: SparkSession, herd: HerdOf
    ) -> None:
        names = [f"log{number}" for number in range(5)]
        herd.append(**{name: [["a=1"], ["a=2"], ["a=3"]] for name in names})
        ids = [herd.ids[name] for name in names]
        rule = ByKey(KEY)
        compact_logs_by_key(spark, herd.root, rule, log_ids=ids, options=STRICT)
        herd.append(**{name: [["a=4"], ["a=5"]] for name in names})
        store = store_of(herd.root, "log1")
        manifest, _ = asyncio.run(load_manifest(store))
        asyncio.run(store.delete_many([manifest.fragments[-1].path]))
        broken = store_of(herd.root, "log3")
        index, _ = asyncio.run(load_index(broken))
        assert index is not None
        asyncio.run(broken.delete_many([index.parts[0].path]))
        ids.append("0" * 32)
        done = compact_logs_by_key(spark, herd.root, rule, log_ids=ids, options=STRICT)
        assert done.gone == 1
        assert [(each.log, type(each.error)) for each in done.troubles] == [
            (herd.ids["log1"], Corrupt)
        ]
        read = {each.log: each.read for each in done.logs}
        assert read == {"log0": 2, "log2": 2, "log3": 3, "log4": 2}
        assert [herd.bodies(str(name)) for name in read] == [["a=5"]] * 4

    def test_many_are_done_by_tasks(
        self, spark: SparkSession, herd: HerdOf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(by_key_module, "HERE_MAX", 0)
        names = [f"log{number}" for number in range(6)]
        herd.append(**{name: [["a=1"], ["a=2"], [f"{name}=3"]] for name in names})
        ids = [herd.ids[name] for name in names]
        told: list[tuple[int, int]] = []
        done = compact_logs_by_key(
            spark,
            herd.root,
            ByKey(KEY),
            log_ids=ids,
            options=STRICT,
            on_progress=lambda *each: told.append(each),
        )
        assert (done.records, done.troubles) == (6, ())
        assert all(herd.bodies(name) == ["a=2", f"{name}=3"] for name in names)
        assert done.usage != Usage()

    def test_a_stored_index_that_is_damaged_is_told_to_nobody(self) -> None:
        with pytest.raises(Corrupt):
            decode_index(b"{}")

    def test_a_log_that_is_not_there(self, spark: SparkSession, url: str) -> None:
        with pytest.raises(NotFound, match="there is no log"):
            compact_by_key(spark, url, KEY)
