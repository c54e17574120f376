"""A call that is wrong in itself is ``Invalid``: never a bare error, and nothing is left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import stratalog as sl
from objectlog.whole_log import FakeClock, bodies_of, run
from stratalog.errors import Invalid
from stratalog.store import MemoryStore

NAN = float("nan")
INFINITE = float("inf")


class TestOptions:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *((name, value) for name in ("fragment_bytes", "uploads_max") for value in ("1", 8.0)),
            ("queue_bytes_max", None),
            ("queue_records_max", True),
            ("rollup_entries", "12"),
            *(("timeout_s", value) for value in ("1", None, NAN, True, -1.0)),
            *(("interval_s", value) for value in ("1", None, NAN, INFINITE, -0.1)),
            ("on_fenced", None),
            ("compression", 1),
        ],
    )
    def test_of_a_writer(self, name: str, value: object) -> None:
        with pytest.raises(Invalid):
            sl.WriterOptions(**{name: value})  # type: ignore[arg-type]

    def test_of_a_writer_that_contradict_each_other(self) -> None:
        with pytest.raises(Invalid, match="uploads_max"):
            sl.WriterOptions(uploads_max=4)
        sl.WriterOptions(uploads_max=4, manifest_fragments_max=4)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("cache_bytes", "1"),
            ("prefetch_bytes", None),
            ("poll_s_max", "1"),
            ("poll_s_max", INFINITE),
            ("timeout_s", NAN),
            ("verify", "no"),
        ],
    )
    def test_of_a_reader(self, name: str, value: object) -> None:
        with pytest.raises(Invalid):
            sl.ReaderOptions(**{name: value})  # type: ignore[arg-type]

    @pytest.mark.parametrize("value", ["1", 1.0, True, b"1"])
    @pytest.mark.parametrize(
        "name", ["max_files", "max_bytes", "max_records", "to_offset", "to_timestamp_us"]
    )
    def test_of_a_scan(self, name: str, value: object) -> None:
        with pytest.raises(Invalid):
            sl.Limits(**{name: value})  # type: ignore[arg-type]


class TestNames:
    @pytest.mark.parametrize("writer", ["", "x" * 201, "a\nb", "\ud800", 5, b"me"])
    def test_a_writers_name_that_is_no_printable_text(self, writer: Any) -> None:
        async def main() -> None:
            empty, store = MemoryStore(), MemoryStore()
            with pytest.raises(Invalid):
                await sl.create_log(empty, writer=writer)
            with pytest.raises(Invalid):
                await sl.LogWriter.open(empty, create=True, writer=writer)
            assert [row async for row in empty.list()] == []
            await sl.create_log(store)
            with pytest.raises(Invalid):
                await sl.LogWriter.open(store, writer=writer)
            with pytest.raises(Invalid):
                sl.CursorStore(store, writer=writer)

        run(main())

    def test_the_longest_name_may_be_in_any_script(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            async with sl.LogWriter.open(store, create=True, writer="ü" * 200) as log:
                await log.append(b"one")
            async with sl.LogReader.open(store) as reader:
                assert reader.manifest.writer == "ü" * 200

        run(main())


class TestOffsetsAndTimes:
    @pytest.mark.parametrize("offset", ["1", 1.0, None, True, 0, -1, 2**63])
    def test_a_reader_that_begins_at_no_offset(self, offset: Any) -> None:
        async def main() -> None:
            store = MemoryStore()
            async with sl.LogWriter.open(store, create=True) as log:
                await log.append(b"one")
            async with sl.LogReader.open(store) as reader:
                with pytest.raises(Invalid):
                    await reader.scan(offset)
                with pytest.raises(Invalid):
                    [record async for record in reader.records(offset)]
                with pytest.raises(Invalid):
                    await reader.to_arrow(offset)
                if offset is not None:
                    with pytest.raises(Invalid):
                        await anext(reader.follow(offset))

        run(main())

    @pytest.mark.parametrize("name", ["to_offset", "from_timestamp_us", "to_timestamp_us"])
    @pytest.mark.parametrize("value", ["1", 1.5, b"1"])
    def test_a_reader_that_ends_or_begins_at_what_is_no_number(self, name: str, value: Any) -> None:
        async def main() -> None:
            store = MemoryStore()
            async with sl.LogWriter.open(store, create=True) as log:
                await log.append(b"one")
            async with sl.LogReader.open(store) as reader:
                with pytest.raises(Invalid):
                    [record async for record in reader.records(**{name: value})]
                if name == "from_timestamp_us":
                    with pytest.raises(Invalid):
                        await reader.scan(from_timestamp_us=value)

        run(main())

    def test_a_log_with_times_has_nothing_before_the_beginning_of_time(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            runtime = FakeClock(7)
            async with sl.LogWriter.open(store, create=True, runtime=runtime) as log:
                for number in range(3):
                    await log.append(b"%d" % number)
            async with sl.LogReader.open(store) as reader:
                for limit_us in (0, 1, 7):
                    assert await reader.scan(limits=sl.Limits(to_timestamp_us=limit_us)) == []
                    assert [row async for row in reader.records(to_timestamp_us=limit_us)] == []
                assert len([row async for row in reader.records(to_timestamp_us=8)]) == 3

        run(main())

    @pytest.mark.parametrize("offset", [0, -1])
    def test_the_hint_for_an_offset_below_the_first_says_where_they_begin(
        self, offset: int
    ) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(MemoryStore(), create=True) as log:
                with pytest.raises(Invalid) as caught:
                    await log.append(b"x", expected_offset=offset)
            assert caught.value.hint == "Offsets begin at 1."

        run(main())

    @pytest.mark.parametrize("offset", ["1", 1.0, True, b"1", 0, -1, 2**63])
    def test_an_append_that_expects_no_offset(self, offset: Any) -> None:
        async def main() -> None:
            store = MemoryStore()
            async with sl.LogWriter.open(store, create=True) as log:
                with pytest.raises(Invalid):
                    await log.append(b"x", expected_offset=offset)
                with pytest.raises(Invalid):
                    await log.append_many([b"x"], expected_offset=offset)
                with pytest.raises(Invalid):
                    log.submit(b"x", expected_offset=offset)
                assert (await log.append(b"one")).offset == 1
            assert await bodies_of(store) == [b"one"]

        run(main())


class TestBodies:
    @pytest.mark.parametrize("body", ["text", 5, None, [b"x"]])
    def test_a_body_that_is_not_bytes(self, body: Any) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(MemoryStore(), create=True) as log:
                with pytest.raises(Invalid):
                    await log.append(body)
                with pytest.raises(Invalid):
                    await log.append_many([b"fine", body])
                with pytest.raises(Invalid):
                    log.submit(body)
                assert (await log.append(b"one")).offset == 1

        run(main())

    @pytest.mark.parametrize("bodies", [None, b"abc", bytearray(b"abc"), memoryview(b"abc"), 5, []])
    def test_a_batch_that_is_none(self, bodies: Any) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(MemoryStore(), create=True) as log:
                with pytest.raises(Invalid) as caught:
                    await log.append_many(bodies)
                assert caught.value.hint != Invalid.default_hint
                assert (await log.append(b"one")).offset == 1

        run(main())


class TestAnotherFormat:
    def test_a_manifest_of_a_newer_major_version_does_not_hold(self) -> None:
        text = sl.Manifest.empty("me", "w").to_json()
        newer = sl.Manifest.from_json(text.replace(b'"format":"1.1"', b'"format":"2.0"'))
        assert newer.format == "2.0"
        with pytest.raises(Invalid, match=r"2\.0"):
            newer.check()
        sl.Manifest.from_json(text.replace(b'"format":"1.1"', b'"format":"1.9"')).check()


class TestClosedReader:
    def test_it_keeps_nothing_in_memory(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            options = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=4)
            async with sl.LogWriter.open(store, create=True, options=options) as log:
                for number in range(10):
                    await log.append(b"%d" % number)
            reader = await sl.LogReader.open(store)
            await asyncio.gather(*(reader.fetch(each) for each in await reader.scan()))
            assert reader._batches.bytes > 0
            assert reader._snapshots.bytes > 0
            await reader.close()
            assert reader._batches.bytes == reader._snapshots.bytes == 0

        run(main())


class TestAnotherEventLoop:
    @pytest.mark.parametrize("call", ["drain", "flush", "close"])
    def test_it_is_refused_and_the_writer_goes_on(self, call: str) -> None:
        async def scenario() -> None:
            async with sl.LogWriter.open(MemoryStore(), create=True) as log:
                waiting = log.submit(b"one")

                def elsewhere() -> None:
                    asyncio.run(getattr(log, call)())

                with pytest.raises(Invalid, match="another event loop"):
                    await asyncio.to_thread(elsewhere)
                assert (await waiting).offset == 1
                assert (await log.append(b"two")).offset == 2

        run(scenario())
