"""What every store must do, as tests that any implementation can inherit.

    class TestMyStore(StoreConformance):
        async def make_store(self) -> Store:
            return MyStore(...)          # fresh and empty

Each test is a statement about the contract in ``stratalog.store.protocol`` and runs its own event
loop. The races are real: conditions that hold for one caller at a time prove nothing. Lower
``contenders`` for a server that is slow to settle them.
"""

import asyncio
import hashlib
import json

import pytest

from stratalog.errors import Conflict, Exists, Invalid, NotFound, Unknown
from stratalog.store import Store
from stratalog.testing.scenarios import Scenarios, scenario

ILLEGAL_PATHS = ("", "/", "a/", "/a", "a//b", ".", "..", "a/../b", ".hidden", "a/.hidden", "a\0b")

LISTINGS = (
    *((prefix, "") for prefix in "a a/ a/b a/b/ a- b bb ab0 b/ nothing a/nothing/ a// ../".split()),
    *(("", after) for after in "a/b/1 a-b/1 a/b".split()),
    *(("a/", after) for after in "a/b/1 0 z".split()),
    ("a/b", "a/b/2"),
    ("b", "a/b/1"),
)
"""Prefixes, and the path after which the listing begins."""


class StoreConformance(Scenarios):
    """Inherit, and say how to make a store."""

    contenders = 8
    rounds = 10
    objects_many = 1100

    @pytest.mark.parametrize("size", [0, 1, 4096, 1 << 20])
    @scenario
    async def test_bytes_come_back_as_they_were_put(self, store: Store, size: int) -> None:
        data = bytes(range(256)) * (size // 256) + bytes(size % 256)
        etag = await store.put_if_absent("some/object", data)
        blob = await store.get("some/object")
        assert blob.data == data
        assert type(blob.data) is bytes
        assert blob.etag == etag

    @scenario
    async def test_head_tells_size_and_etag(self, store: Store) -> None:
        etag = await store.put_if_absent("a/b", b"12345")
        head = await store.head("a/b")
        assert (head.path, head.size, head.etag) == ("a/b", 5, etag)
        etag = await store.put_if_match("a/b", b"123456", etag)
        head = await store.head("a/b")
        assert (head.path, head.size, head.etag) == ("a/b", 6, etag)

    @scenario
    async def test_a_missing_object_is_not_found(self, store: Store) -> None:
        await store.put_if_absent("a/b", b"")
        for path in ("a/c", "b", "a", "a/b/c"):
            for call in (store.get(path), store.head(path), store.get_range(path, 0, 1)):
                with pytest.raises(NotFound):
                    await call

    @scenario
    async def test_an_empty_store_is_readable(self, store: Store) -> None:
        assert [row async for row in store.list()] == []
        assert [row async for row in store.list("a/b")] == []
        await store.delete_many(["a/b"])
        with pytest.raises(NotFound):
            await store.get("a/b")

    @scenario
    async def test_a_range_is_read(self, store: Store) -> None:
        await store.put_if_absent("r", b"0123456789")
        assert await store.get_range("r", 0, 10) == b"0123456789"
        assert await store.get_range("r", 3, 4) == b"3456"
        assert await store.get_range("r", 9, 1) == b"9"
        assert await store.get_range("r", 10, 0) == b""
        assert await store.get_range("r", 0, 0) == b""

    @pytest.mark.parametrize(
        ("start", "length"), [(0, 11), (9, 2), (10, 1), (20, 1), (-1, 2), (0, -1)]
    )
    @scenario
    async def test_a_range_outside_of_the_object_is_refused(
        self, store: Store, start: int, length: int
    ) -> None:
        await store.put_if_absent("r", b"0123456789")
        with pytest.raises(Invalid):
            await store.get_range("r", start, length)

    @scenario
    async def test_a_name_is_created_once(self, store: Store) -> None:
        etag = await store.put_if_absent("x/y", b"first")
        with pytest.raises(Exists):
            await store.put_if_absent("x/y", b"second")
        blob = await store.get("x/y")
        assert (blob.data, blob.etag) == (b"first", etag)

    @scenario
    async def test_a_matching_etag_replaces(self, store: Store) -> None:
        etag = await store.put_if_absent("x", b"0")
        for version in range(1, 5):
            etag = await store.put_if_match("x", b"%d" % version, etag)
            blob = await store.get("x")
            assert (blob.data, blob.etag) == (b"%d" % version, etag)
        read = await store.get("x")
        await store.put_if_match("x", b"after a read", read.etag)
        assert (await store.get("x")).data == b"after a read"

    @scenario
    async def test_a_stale_etag_is_refused_and_changes_nothing(self, store: Store) -> None:
        stale = await store.put_if_absent("x", b"0")
        current = await store.put_if_match("x", b"1", stale)
        with pytest.raises(Conflict):
            await store.put_if_match("x", b"2", stale)
        blob = await store.get("x")
        assert (blob.data, blob.etag) == (b"1", current)

    @scenario
    async def test_a_match_on_a_missing_object_is_refused(self, store: Store) -> None:
        etag = await store.put_if_absent("deep/er/x", b"0")
        for missing in ("deep/er/y", "else/where"):
            with pytest.raises(Conflict):
                await store.put_if_match(missing, b"1", etag)
        await store.delete_many(["deep/er/x"])
        with pytest.raises(Conflict):
            await store.put_if_match("deep/er/x", b"1", etag)
        assert [row async for row in store.list()] == []

    @scenario
    async def test_a_deleted_object_is_gone_and_its_name_free(self, store: Store) -> None:
        await store.put_if_absent("a/b/c", b"1")
        await store.put_if_absent("a/b/d", b"2")
        await store.delete_many(["a/b/c"])
        with pytest.raises(NotFound):
            await store.get("a/b/c")
        assert [row.path async for row in store.list()] == ["a/b/d"]
        await store.put_if_absent("a/b/c", b"3")
        assert (await store.get("a/b/c")).data == b"3"

    @scenario
    async def test_deleting_what_is_missing_is_no_error(self, store: Store) -> None:
        await store.put_if_absent("a", b"1")
        await store.delete_many([])
        await store.delete_many(["none", "a", "no/ne", "a"])
        await store.delete_many(["a"])
        assert [row async for row in store.list()] == []

    @scenario
    async def test_a_listing_is_in_byte_order_of_whole_paths(self, store: Store) -> None:
        paths = ["a/b", "a-b", "a.b", "a0", "a/b-c/d", "a/b.c", "a=1/x", "Z", "é", "a!/z", "b"]
        for size, path in enumerate(p for p in paths if p != "a/b"):
            await store.put_if_absent(path, bytes(size))
        await store.put_if_absent("a/b/x", b"")
        rows = [row async for row in store.list()]
        expected = sorted([*(p for p in paths if p != "a/b"), "a/b/x"], key=str.encode)
        assert [row.path for row in rows] == expected
        sizes = {row.path: row.size for row in rows}
        assert sizes["a0"] == 2

    @pytest.mark.parametrize(("prefix", "after"), LISTINGS)
    @scenario
    async def test_a_listing_obeys_prefix_and_after(
        self, store: Store, prefix: str, after: str
    ) -> None:
        paths = ["a/b/1", "a/b/2", "a/b-c", "a/bc/1", "a-b/1", "a-b/2", "ab", "b", "bb/1", "c/a/b"]
        await asyncio.gather(*(store.put_if_absent(path, b"") for path in paths))
        found = [row.path async for row in store.list(prefix, after)]
        assert found == sorted(p for p in paths if p.startswith(prefix) and p > after)

    @scenario
    async def test_a_long_listing_is_complete_and_resumes_anywhere(self, store: Store) -> None:
        count = self.objects_many
        paths = [f"n/{index % 7}/{index:05}" for index in range(count)]
        for begin in range(0, count, 100):
            batch = paths[begin : begin + 100]
            await asyncio.gather(*(store.put_if_absent(path, b"x") for path in batch))
        expected = sorted(paths)
        assert [row.path async for row in store.list("n/")] == expected
        middle = expected[count // 2]
        resumed = [row.path async for row in store.list("n/", middle)]
        assert resumed == expected[count // 2 + 1 :]
        await store.delete_many(paths)
        assert [row async for row in store.list()] == []

    @scenario
    async def test_a_listing_may_be_left_early(self, store: Store) -> None:
        for name in ("a", "b", "c"):
            await store.put_if_absent(name, b"")
        async for row in store.list():
            assert row.path == "a"
            break

    @pytest.mark.parametrize(
        "path",
        [
            "log/Bucket=0000000000001000/Writer=ab12-7/FragmentSeqNo=0000000000001001.parquet",
            "snapshot/SNAPSHOT.00ff.ab12-7",
            "with space/and+plus&more",
            "percent%20sign/%",
            "umlaut/äöü/日本",
            "x" * 200,
        ],
    )
    @scenario
    async def test_a_path_survives_as_it_was_given(self, store: Store, path: str) -> None:
        await store.put_if_absent(path, path.encode())
        assert (await store.get(path)).data == path.encode()
        assert [row.path async for row in store.list()] == [path]

    @pytest.mark.parametrize("path", [*ILLEGAL_PATHS, "x" * 1025, "\ud800"])
    @scenario
    async def test_an_illegal_path_is_refused_by_every_operation(
        self, store: Store, path: str
    ) -> None:
        for call in (
            lambda: store.get(path),
            lambda: store.get_range(path, 0, 1),
            lambda: store.head(path),
            lambda: store.put_if_absent(path, b""),
            lambda: store.put_if_match(path, b"", "etag"),
        ):
            with pytest.raises(Invalid):
                await call()
        assert [row async for row in store.list()] == []

    @scenario
    async def test_one_of_many_creators_wins(self, store: Store) -> None:
        async def create(path: str, contender: int) -> bytes | None:
            data = b"contender %d" % contender
            try:
                await store.put_if_absent(path, data)
            except Exists:
                return None
            return data

        for round_ in range(self.rounds):
            path = f"race/{round_}/x"
            answers = await asyncio.gather(*(create(path, c) for c in range(self.contenders)))
            winners = [data for data in answers if data is not None]
            assert [(await store.get(path)).data] == winners

    @scenario
    async def test_one_of_many_replacers_of_a_version_wins(self, store: Store) -> None:
        etag = await store.put_if_absent("race/x", b"start")

        async def replace(data: bytes, current: str) -> tuple[bytes, str] | None:
            try:
                return data, await store.put_if_match("race/x", data, current)
            except Conflict:
                return None

        for round_ in range(self.rounds):
            contents = [b"%d by %d" % (round_, c) for c in range(self.contenders)]
            answers = await asyncio.gather(*(replace(data, etag) for data in contents))
            winners = [answer for answer in answers if answer is not None]
            blob = await store.get("race/x")
            assert [(blob.data, blob.etag)] == winners
            etag = blob.etag

    @scenario
    async def test_concurrent_increments_lose_none(self, store: Store) -> None:
        await store.put_if_absent("counter", json.dumps({}).encode())

        async def add(contender: str) -> None:
            done, unsettled = 0, -1
            while done < self.rounds:
                blob = await store.get("counter")
                counts: dict[str, int] = json.loads(blob.data)
                mine = counts.get(contender, 0)
                if 0 <= unsettled < mine:
                    done, unsettled = done + 1, -1
                    continue
                counts[contender] = mine + 1
                await asyncio.sleep(0)
                try:
                    await store.put_if_match("counter", json.dumps(counts).encode(), blob.etag)
                except (Conflict, Unknown):
                    unsettled = mine
                    continue
                done, unsettled = done + 1, -1

        names = [f"contender-{index}" for index in range(self.contenders)]
        await asyncio.gather(*(add(name) for name in names))
        counts = json.loads((await store.get("counter")).data)
        assert counts == dict.fromkeys(names, self.rounds)

    @scenario
    async def test_a_reader_sees_whole_versions_only(self, store: Store) -> None:
        def version(number: int) -> bytes:
            body = b"%d" % number * 5000
            return hashlib.sha256(body).digest() + body

        etag = await store.put_if_absent("x", version(0))
        done = False

        async def read() -> None:
            while not done:
                data = (await store.get("x")).data
                assert hashlib.sha256(data[32:]).digest() == data[:32]
                await asyncio.sleep(0)

        readers = [asyncio.create_task(read()) for _ in range(3)]
        for number in range(1, 30):
            etag = await store.put_if_match("x", version(number), etag)
        done = True
        await asyncio.gather(*readers)
