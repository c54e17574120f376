"""Behaviour 21: a key–value state over a node's disk, through restart, copy and compaction."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from examples.kv.kv import Store
from stratalog.errors import Conflict, Trimmed
from stratalog.segments import Disk, DiskOptions

T = TypeVar("T")

KIB = 1024
SMALL = DiskOptions(
    wal_file_bytes=32 * KIB,
    segment_entries_max=200,
    segment_bytes_max=16 * KIB,
    major_after_minors=4,
)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 120))


async def items_of(path: Path, *, checkpoint_every: int = 100) -> dict[bytes, bytes]:
    async with await Store.open(path, checkpoint_every=checkpoint_every, options=SMALL) as store:
        return {key: value async for key, value in store.items()}


def segments_of(path: Path) -> list[Path]:
    return sorted((path / "seg").iterdir())


def bytes_of(path: Path) -> int:
    return sum(file.stat().st_size for file in segments_of(path))


async def written_at_random(
    path: Path, seed: int, writes: int, **options: Any
) -> dict[bytes, bytes]:
    """Some keys overwritten and deleted at random, many writes at a time; gives what must be."""
    random = Random(seed)
    expected: dict[bytes, bytes] = {}
    async with await Store.open(path, options=SMALL, **options) as store:
        calls: list[Coroutine[Any, Any, None]] = []
        for number in range(writes):
            key = b"key %d" % random.randrange(40)
            if random.random() < 0.2:
                calls.append(store.delete(key))
                expected.pop(key, None)
            else:
                expected[key] = b"value %d " % number * random.randrange(1, 30)
                calls.append(store.set(key, expected[key]))
            if len(calls) == 50:
                await asyncio.gather(*calls)
                calls.clear()
        await asyncio.gather(*calls)
        assert {key: value async for key, value in store.items()} == expected
    return expected


def test_behaviour_21_ten_thousand_overwrites_of_one_key_leave_a_handful_of_segments(
    tmp_path: Path,
) -> None:
    async def scenario() -> bytes | None:
        async with await Store.open(tmp_path, checkpoint_every=250, options=SMALL) as store:
            await store.set(b"other", b"as it was")
            for start in range(0, 10_000, 500):
                await asyncio.gather(
                    *(store.set(b"counter", b"%d" % n) for n in range(start, start + 500))
                )
            await store.checkpoint()
            await store.compact()
            assert await store.get(b"other") == b"as it was"
            assert len(store.live) == 2
            return await store.get(b"counter")

    assert run(scenario()) == b"9999"
    assert 1 <= len(segments_of(tmp_path)) <= 3
    assert run(items_of(tmp_path)) == {b"counter": b"9999", b"other": b"as it was"}


@pytest.mark.parametrize("seed", range(3))
def test_behaviour_21_restart_copy_and_compaction_return_identical_values(
    tmp_path: Path, seed: int
) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    expected = run(written_at_random(original, seed, 2000, checkpoint_every=100))
    assert run(items_of(original)) == expected
    shutil.copytree(original, copy)

    async def compacted() -> None:
        async with await Store.open(copy, options=SMALL) as store:
            await store.checkpoint()
            await store.compact()
            assert len(store.live) == len(expected)
            assert {key: value async for key, value in store.items()} == expected

    run(compacted())
    values_bytes = sum(map(len, expected.values()))
    assert bytes_of(copy) < 2 * values_bytes + 3 * SMALL.segment_bytes_max, "the dead are gone"
    assert run(items_of(copy)) == run(items_of(original)) == expected


def test_behaviour_21_a_deleted_key_stays_deleted(tmp_path: Path) -> None:
    async def delete() -> None:
        async with await Store.open(tmp_path, options=SMALL) as store:
            await store.set(b"key", b"value")
            await store.set(b"kept", b"value")
            await store.checkpoint()
            await store.delete(b"key")
            assert await store.get(b"key") is None

    async def checkpoint_and_compact() -> None:
        async with await Store.open(tmp_path, options=SMALL) as store:
            assert await store.get(b"key") is None
            await store.checkpoint()
            await store.compact()
            assert await store.get(b"key") is None
            assert len(store.live) == 1, "the entry that deleted it is dead as well"

    run(delete())
    run(checkpoint_and_compact())
    assert run(items_of(tmp_path)) == {b"kept": b"value"}


def test_behaviour_21_a_checkpoint_at_every_position_restarts_to_the_same_values(
    tmp_path: Path,
) -> None:
    """Wherever the checkpoint lies, it and the entries above it make the state."""
    writes = [(b"abc"[n % 3 : n % 3 + 1], None if n % 5 == 4 else b"%d" % n) for n in range(12)]
    expected = {key: value for key, value in dict(writes).items() if value is not None}

    async def write_all(path: Path, checkpoint_after: int, *, flush: bool) -> None:
        async with await Store.open(path, checkpoint_every=1000, options=SMALL) as store:
            for number, (key, value) in enumerate(writes, 1):
                await (store.delete(key) if value is None else store.set(key, value))
                if number == checkpoint_after:
                    await store.checkpoint()
                    if flush:
                        await store.compact()

    for flush in (False, True):
        for position in range(len(writes) + 1):
            path = tmp_path / f"{position}-{flush}"
            run(write_all(path, position, flush=flush))
            assert run(items_of(path)) == expected, position


def test_a_store_is_small_after_many_values_although_its_checkpoint_holds_none(
    tmp_path: Path,
) -> None:
    async def scenario() -> int:
        async with await Store.open(tmp_path, options=SMALL) as store:
            await asyncio.gather(*(store.set(b"%d" % n, bytes(4 * KIB)) for n in range(100)))
            await store.checkpoint()
        async with await Disk.open(tmp_path, SMALL) as disk:
            state = await (await disk.partition("kv")).state()
            assert state is not None
            return len(state)

    assert run(scenario()) < 1000


def test_a_write_whose_caller_gives_up_is_in_the_next_checkpoint(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await Store.open(tmp_path, options=SMALL) as store:
            await store.set(b"first", b"1")
            given_up = asyncio.create_task(store.set(b"second", b"2"))
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            await store.set(b"third", b"3")
            await store.checkpoint()

    run(scenario())
    assert run(items_of(tmp_path)) == {b"first": b"1", b"second": b"2", b"third": b"3"}


def test_a_read_that_is_overtaken_by_a_checkpoint_finds_the_newer_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with await Store.open(tmp_path, options=SMALL) as store:
            await store.set(b"key", b"old")
            partition = store._log
            real = partition.get

            async def overtaken(index: int) -> Any:
                monkeypatch.setattr(partition, "get", real)
                await store.set(b"key", b"new")
                await store.checkpoint()
                await store.compact()
                raise Trimmed(f"entry {index} does not live any more")

            monkeypatch.setattr(partition, "get", overtaken)
            assert await store.get(b"key") == b"new"

    run(scenario())


def test_two_processes_cannot_have_one_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await Store.open(tmp_path):
            with pytest.raises(Conflict, match="open"):
                await Store.open(tmp_path)

    run(scenario())
