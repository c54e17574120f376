"""Verification of a herd: what fits is shown, and each thing that does not fit is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

import stratalog as sl
from objectlog.planted_damage import PLANTERS, Victim
from objectlog.whole_log import replace_bytes, run
from pipeline.herds import (
    ALL_THAT_WAITS,
    KEY,
    delete,
    drop,
    fill,
    ids_of,
    new_place,
    paths_below,
    root_of,
    set_cursor,
    store_of,
)
from stratalog.errors import Invalid, NotFound
from stratalog.herd.names import SIDES, dirty_store
from stratalog.objectlog.check.damage import DamageKind
from stratalog.objectlog.stored import decode_document
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.pipeline import HerdVerify, HerdVerifyOptions, latest_by_key, scrub_herd, verify_herd
from stratalog.pipeline.check.findings import MEANINGS, Finding
from stratalog.pipeline.materialize import materialize
from stratalog.pipeline.outputs.output import Output
from stratalog.pipeline.read.dataframes import read_herd
from stratalog.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def kinds(found: HerdVerify) -> list[tuple[str | None, str]]:
    return [(each.log, each.kind) for each in found.findings]


def roll_up(root: str, server: str = "worker") -> sl.RolledUp:
    async def main() -> sl.RolledUp:
        async with sl.Herd.open(root, server=server) as herd:
            return await sl.roll_up(herd, options=ALL_THAT_WAITS)

    return run(main())


@pytest.fixture(scope="module")
def materialized(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A herd of which two logs are materialized, one has more since, and one is not."""
    root = str(tmp_path_factory.mktemp("materialized") / "herd")
    fill(root, {"a": 40, "b": 40, "c": 40})
    assert not materialize(spark, root, latest_by_key(KEY), logs=["a", "b"]).troubles
    fill(root, {"b": 10})
    return root


@pytest.fixture
def root(materialized: str, tmp_path: Path) -> str:
    """The same herd for one test alone."""

    async def copy() -> None:
        source, target = open_store(materialized), open_store(root_of(tmp_path))
        async for row in source.list():
            await target.put_if_absent(row.path, (await source.get(row.path)).data)

    run(copy())
    return root_of(tmp_path)


@pytest.mark.parametrize("here_max", [0, 100])
def test_a_good_herd_fits_together(spark: SparkSession, root: str, here_max: int) -> None:
    options = HerdVerifyOptions(here_max=here_max)
    found = verify_herd(spark, root, options=options)
    assert found.ok, found.findings
    assert (len(found.logs), found.records, found.waiting) == (3, 130, 2)
    for _ in range(2):
        roll_up(root)  # which puts marks back
        assert verify_herd(spark, root, options=options).ok
    assert {log.log: (log.waiting, log.output_rows) for log in found.logs} == {
        "a": (0, 10),
        "b": (10, 10),
        "c": (40, 0),
    }


def test_records_without_a_mark_are_found(spark: SparkSession, root: str) -> None:
    """Nobody would ever find them: they were appended past the herd."""
    store = store_of(root, "a")

    async def append() -> None:
        async with sl.LogWriter.open(store) as log:
            await log.append(b"key-1 unseen")

    run(append())
    found = verify_herd(spark, root)
    assert kinds(found) == [("a", "unmarked")]
    assert "1 records from 41 to 42" in found.findings[0].detail
    fill(root, {"a": 4})
    assert verify_herd(spark, root).ok


def test_a_roll_up_that_forgets_a_mark_is_found(spark: SparkSession, root: str) -> None:
    """The cursors of the dirty logs are moved, and nothing was put back."""

    async def forget() -> None:
        for side in SIDES:
            store = dirty_store(open_store(root), "api", side)
            try:
                async with sl.LogReader.open(store) as reader:
                    await sl.CursorStore(store).create("rollup", reader.tail)
            except sl.errors.NotFound:
                continue

    run(forget())
    assert sorted(kinds(verify_herd(spark, root))) == [("b", "unmarked"), ("c", "unmarked")]


def test_a_cursor_beyond_the_output_or_the_tail_is_found(spark: SparkSession, root: str) -> None:
    set_cursor(root, "b", 45)
    set_cursor(root, "c", 45)
    assert sorted(kinds(verify_herd(spark, root))) == [
        ("b", "output-behind"),
        ("c", "cursor-out-of-range"),
    ]


def test_an_output_beyond_the_tail_is_found(spark: SparkSession, root: str) -> None:
    path = f"outputs/latest/{ids_of(root)['a']}/OUTPUT"

    async def claim() -> None:
        store = open_store(root)
        output = decode_document(Output, (await store.get(path)).data)
        await replace_bytes(store, path, msgspec.structs.replace(output, upto=99).to_json())

    run(claim())
    assert kinds(verify_herd(spark, root)) == [("a", "output-ahead")]
    assert verify_herd(spark, root, options=HerdVerifyOptions(job=None)).ok


def test_files_of_an_output_that_are_missing_or_cut_are_found(
    spark: SparkSession, root: str
) -> None:
    ids = ids_of(root)
    (of_a,) = [path for path in paths_below(root, f"outputs/latest/{ids['a']}/") if "parq" in path]
    (of_b,) = [path for path in paths_below(root, f"outputs/latest/{ids['b']}/") if "parq" in path]
    delete(root, of_a)
    run(replace_bytes(open_store(root), of_b, b"short"))
    found = verify_herd(spark, root)
    assert sorted(kinds(found)) == [("a", "output-file"), ("b", "output-file")]
    assert ["missing" in each.detail for each in found.findings] == [True, False]


def test_a_file_of_an_output_with_other_bytes_is_found(spark: SparkSession, root: str) -> None:
    """Once the log is collected it is the only copy."""
    prefix = f"outputs/latest/{ids_of(root)['a']}/"
    (path,) = [path for path in paths_below(root, prefix) if "parq" in path]

    async def flip() -> None:
        data = bytearray((await open_store(root).get(path)).data)
        data[len(data) // 2] ^= 1
        await replace_bytes(open_store(root), path, bytes(data))

    run(flip())
    found = verify_herd(spark, root)
    assert kinds(found) == [("a", "output-file")]
    assert "the bytes that were written" in found.findings[0].detail
    assert verify_herd(spark, root, options=HerdVerifyOptions(outputs=False)).ok


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_manifest_that_is_lost_is_not_taken_for_a_drop(
    spark: SparkSession, root: str, is_empty: bool
) -> None:
    log_id = ids_of(root)["a"]
    if is_empty:  # of a log that was compacted whole, only the cursor is there
        for path in paths_below(root, f"logs/{log_id}/log/"):
            delete(root, path)
    delete(root, f"logs/{log_id}/{MANIFEST_PATH}")
    assert kinds(verify_herd(spark, root)) == [("a", "manifest-missing")]
    scrubbed = scrub_herd(spark, root)
    assert not scrubbed.clean
    assert [log.label for log in scrubbed.logs if not log.clean] == ["a"]
    with pytest.raises(NotFound):
        read_herd(spark, root)


@pytest.mark.parametrize(
    "planted",
    [
        "a manifest with another sum",
        "a manifest that is none",
        "a manifest with a gap",
        "a missing snapshot",
        "a truncated snapshot",
        "a pointer with another size",
    ],
)
def test_a_tree_that_does_not_fit_its_manifest_is_found(
    spark: SparkSession, tmp_path: Path, planted: str
) -> None:
    root, (kind, planter) = root_of(tmp_path), PLANTERS[planted]
    place = new_place(root, "a")

    async def plant() -> None:
        await planter(await Victim.make(place))

    run(plant())
    found = verify_herd(spark, root, options=HerdVerifyOptions(job=None))
    assert kind.value in {each.kind for each in found.findings}


def test_marks_that_cannot_be_read_are_told(spark: SparkSession, root: str) -> None:
    path = f"dirty/api/first/{MANIFEST_PATH}"
    run(replace_bytes(open_store(root), path, b"{}"))
    assert (None, "marks-unreadable") in kinds(verify_herd(spark, root))


def test_a_log_that_is_gone_is_no_finding(spark: SparkSession, root: str) -> None:
    ids = [*ids_of(root).values()]
    drop(root, "c")
    found = verify_herd(spark, root, log_ids=ids)
    assert (found.ok, found.gone, len(found.logs)) == (True, 1, 2)
    assert verify_herd(spark, root).ok


def test_records_are_read_if_asked(spark: SparkSession, root: str) -> None:
    options = HerdVerifyOptions(records=True)
    assert verify_herd(spark, root, options=options).ok
    path = paths_below(root, f"logs/{ids_of(root)['c']}/log/")[0]
    data = run(open_store(root).get(path)).data
    run(replace_bytes(open_store(root), path, data[:-1]))
    found = verify_herd(spark, root, options=options)
    assert {each.log for each in found.findings} == {"c"}
    assert verify_herd(spark, root).ok, "it is cheap because it does not read them"


def test_each_finding_says_what_it_means_and_what_to_do() -> None:
    for kind in (*MEANINGS, *(each.value for each in DamageKind)):
        finding = Finding(kind=kind, log=None, detail="x")
        assert finding.meaning.endswith(".")
        assert finding.remedy.endswith(".")
        assert str(finding) == f"the herd: {kind}: x"


def test_an_illegal_option_is_refused() -> None:
    for wrong in ({"cursor": "a b"}, {"job": "a/b"}, {"here_max": -1}):
        with pytest.raises(Invalid):
            HerdVerifyOptions(**wrong)
