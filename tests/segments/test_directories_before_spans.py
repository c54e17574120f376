"""Data directories that versions before spans have left: they open, and each entry covers one
index. ``disks-before-spans.zip`` was written by such a version."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import fixtures.make_disk
from segments.disks import SMALL, all_files, found, run
from stratalog.errors import Trimmed
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments import Disk, DiskOptions, Entries, Partition, check_disk, inspect_disk

DIRECTORIES = Path(fixtures.make_disk.__file__).parent / "disks-before-spans.zip"
ORDERS = {
    **{index: (1, b"order %d" % index) for index in (3, 7, 12, 13, 14, 15)},
    **{index: (2, b"order %d, again" % index) for index in (16, 17)},
    18: (2, b"order 18, in the WAL"),
}
SPARSE = {**{index: (1, b"sparse %d" % index) for index in (5, 9, 40)}, 50: (3, b"")}


@pytest.fixture(params=["closed", "crashed"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with zipfile.ZipFile(DIRECTORIES) as stored:
        stored.extractall(tmp_path)
    root = tmp_path / str(request.param)
    for folder in ("wal", "seg", "ckpt", "journal"):
        assert (root / folder).is_dir()
    return root


async def log_of(partition: Partition) -> dict[int, tuple[int, bytes]]:
    """What is needed of it."""
    listed = await found(partition)
    assert {entry.span for entry in listed} == {1}
    needed = partition.live | IndexSet(range(partition.checkpoint_index + 1, 1 << 40))
    return {each.index: (each.epoch, each.payload) for each in listed if each.index in needed}


def test_everything_is_there(root: Path) -> None:
    async def main() -> None:
        async with await Disk.open(root, SMALL) as disk:
            assert disk.partitions() == ["orders", "sparse"]
            orders, sparse = await disk.partition("orders"), await disk.partition("sparse")
            assert await log_of(orders) == ORDERS
            assert await log_of(sparse) == SPARSE
            assert (orders.checkpoint_index, await orders.state()) == (12, b"orders up to 12")
            assert orders.live == IndexSet.of([3, 7, 12])
            assert (orders.tail, sparse.tail) == ((18, 2), (50, 3))
            assert orders.lineage.steps == ((1, 1), (16, 2))
            assert [time for *_, time in orders.segments()] == [None] * len(orders.segments())
            assert orders.first_at(0) == (orders.segments()[0][0])
            assert (disk.notes.items(), sparse.live) == ([], EMPTY)

    run(main())


def test_it_goes_on_with_spans_and_notes(root: Path) -> None:
    async def main() -> None:
        for number in range(2):
            async with await Disk.open(root, SMALL) as disk:
                orders, sparse = await disk.partition("orders"), await disk.partition("sparse")
                if not number:
                    await disk.submit(
                        [
                            (orders, 18, Entries.following(18, 2, [b"wide"], [4])),
                            (sparse, 50, Entries.following(50, 3, [b"next"])),
                        ],
                        {"note": b"value"},
                    )
                    await orders.checkpoint(22, b"all", IndexSet.of([7, 16, 20]))
                    await disk.flush()
                    await orders.append([b"newest"])
                    await disk.flush()
                    await orders.compact()
                assert [each.index for each in await found(orders, orders.live)] == [7, 16, 19]
                assert (await orders.get(21)).span == 4
                with pytest.raises(Trimmed):
                    await orders.get(3)
                assert (await sparse.get(40)).payload == b"sparse 40"
                assert (await sparse.get(51)).payload == b"next"
                assert disk.notes.get("note") == b"value"
                report = await check_disk(root)
                assert not report.damages

    run(main())


def test_its_small_segments_are_merged(root: Path) -> None:
    async def main() -> None:
        options = DiskOptions(wal_file_bytes=1 << 16, merge_after_files=2)
        async with await Disk.open(root, options) as disk:
            await disk.flush()
            await disk._engine.compactor.tasks.end()
            orders = await disk.partition("orders")
            assert len(orders.segments()) == 2
            assert await log_of(orders) == ORDERS

    run(main())


def test_looking_at_it_changes_nothing(root: Path) -> None:
    async def main() -> None:
        before = all_files(root)
        report = await inspect_disk(root)
        assert [each.name for each in report.partitions] == ["orders", "sparse"]
        assert not (await check_disk(root)).damages
        assert all_files(root) == before

    run(main())
