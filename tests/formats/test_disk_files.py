"""The files of a node's disk: golden ones are stable, and any bytes give a value or ``Corrupt``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import make_disk
from formats.test_any_bytes import damaged
from stratalog.errors import Corrupt, Invalid
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments import Entries
from stratalog.segments.format.checkpoint_file import Checkpoint, read_checkpoint, read_state
from stratalog.segments.format.clean_close import CleanClose, read_clean_close
from stratalog.segments.format.data_directory import Identity, read_identity
from stratalog.segments.format.frame import Frame, Head, frame_head, frames
from stratalog.segments.format.layout import Layout, apply, decode_edit, encode_edit
from stratalog.segments.format.segment_file import SegmentIndex
from stratalog.segments.format.wal_file import Batch, batches, bytes_behind, first_batch
from stratalog.segments.io.files import Buffer, LocalFiles
from stratalog.segments.recover.find_files import read_live
from stratalog.segments.write_ahead.read_journal import replay_bytes, replay_journal

HERE = Path(make_disk.__file__).parent
T = TypeVar("T")


class Bytes:
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def write_at(self, position: int, *parts: Buffer) -> int:
        raise OSError

    def write_durably(self, position: int, *parts: Buffer) -> int:
        raise OSError

    def read_at(self, position: int, size: int) -> bytes:
        assert position >= 0
        assert size >= 0
        return self.data[position : position + size]

    def read_into(self, position: int, buffer: memoryview) -> int:
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def size(self) -> int:
        return len(self.data)

    def allocate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


def value_of(decode: Callable[[], T]) -> T | None:
    """The value; nothing if it was refused as damaged, with its path, or as too new."""
    try:
        return decode()
    except Corrupt as error:
        assert error.path in (None, "a/path")  # noqa: PT017
    except Invalid as error:
        assert "newer version" in error.hint  # noqa: PT017
    return None


def read_wal(data: bytes) -> list[Batch]:
    head = Head.from_bytes(data, "a/path")
    first = first_batch(Bytes(data), head)
    return list(batches(data, head, first or make_disk.FIRST_BATCH, "a/path"))


def read_segment(data: bytes) -> Entries:
    file = Bytes(data)
    index = SegmentIndex.read(file, make_disk.DISK, make_disk.PARTITION, "a/path")
    (places,) = index.chunks(index.covered, 1 << 30)
    return index.entries_at(file, places)


def read_whole_checkpoint(data: bytes) -> tuple[Checkpoint, bytes]:
    file = Bytes(data)
    found = read_checkpoint(file, make_disk.DISK, make_disk.PARTITION, "a/path")
    return found, read_state(file, found, "a/path")


def read_journal(data: bytes) -> Layout:
    head = Head.from_bytes(data, "a/path")
    layout = Layout()
    for frame in frames(data, head.nonce, head.first, "a/path", lambda frame: not len(frame.body)):
        layout = apply(layout, decode_edit(frame.descriptor, "a/path"), "a/path")
    return layout


def read_journal_of_format_2(data: bytes) -> Layout | None:
    found = replay_bytes(data, make_disk.DISK, "a/path")
    return None if found is None else found.layout


class OneFile:
    """A directory in which each file has these bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def open(self, _: str) -> Bytes:
        return Bytes(self.data)

    def exists(self, _: str) -> bool:
        return True

    def list(self, _: str) -> list[str]:
        return []


def read_closed(data: bytes) -> CleanClose | None:
    try:
        return read_clean_close(OneFile(data), make_disk.DISK)
    except Corrupt as error:
        raise Corrupt(str(error), path="a/path") from error


GROWING = {"disk.wal", "disk.journal", "disk-2.wal", "disk-3.wal", "disk-3-over.wal"}
"""Of which a beginning may be read."""
READERS: dict[str, Callable[[bytes], object]] = {
    "disk.wal": read_wal,
    "disk.seg": read_segment,
    "disk.ckpt": read_whole_checkpoint,
    "disk.journal": read_journal,
    "disk-2.wal": read_wal,
    "disk-2.journal": read_journal_of_format_2,
    "disk-3-over.wal": read_wal,
    "disk-3.wal": read_wal,
    "disk-3.journal": read_journal_of_format_2,
    "disk-2.seg": read_segment,
    "disk.closed": read_closed,
}


@pytest.mark.parametrize("name", make_disk.files())
def test_files_are_stable_byte_for_byte(name: str) -> None:
    assert (HERE / name).read_bytes() == make_disk.files()[name]


class TestGolden:
    def test_the_wal(self) -> None:
        found = read_wal((HERE / "disk.wal").read_bytes())
        assert [batch.number for batch in found] == [5, 6]
        assert [list(batch.sections) for batch in found] == make_disk.sections()

    def test_the_wal_that_was_written_over(self) -> None:
        data = (HERE / "disk-3-over.wal").read_bytes()
        found = read_wal(data)
        assert [batch.number for batch in found] == [5, 6]
        assert [list(batch.sections) for batch in found] == make_disk.sections()
        head = Head.from_bytes(data, "a/path")
        assert (head.first, first_batch(Bytes(data), head)) == (0, 5)
        end = found[-1].end
        assert data.find(make_disk.OLD_NONCE, end) > end
        assert not bytes_behind(data, head, end)
        assert bytes_behind(data, head, found[0].end) == range(found[0].end, end)

    def test_the_segment(self) -> None:
        found = read_segment((HERE / "disk.seg").read_bytes())
        assert found == make_disk.ENTRIES
        assert list(found.indexes) == [1, 2, 3, 7]

    def test_the_checkpoint(self) -> None:
        found, state = read_whole_checkpoint((HERE / "disk.ckpt").read_bytes())
        assert (found, state) == (make_disk.checkpoint(), make_disk.STATE)
        assert IndexSet.from_bytes((HERE / "disk.live").read_bytes()) == found.live

    def test_the_journal(self) -> None:
        layout = read_journal((HERE / "disk.journal").read_bytes())
        assert list(layout.partitions) == [2]
        partition = layout.partitions[2]
        assert partition.name == "golden"
        assert [file.path for file in partition.files] == [make_disk.segment_entry(8, 9).path]
        assert partition.indexes == make_disk.ENTRIES.indexes
        assert partition.checkpoint is not None
        assert (layout.wals, layout.next_wal, layout.next_batch) == ((), 9, 7)

    def test_the_journal_of_format_2(self) -> None:
        old = read_journal((HERE / "disk.journal").read_bytes())
        assert read_journal_of_format_2((HERE / "disk-2.journal").read_bytes()) == old

    def test_the_wal_of_format_3(self) -> None:
        found = read_wal((HERE / "disk-3.wal").read_bytes())
        assert [list(batch.sections) for batch in found] == make_disk.sections_of_format_3()

    def test_the_segment_with_spans(self) -> None:
        found = read_segment((HERE / "disk-2.seg").read_bytes())
        assert found == make_disk.SPANS
        assert list(found.spans) == [3, 1, 1000, 2]
        assert found.indexes == IndexSet(range(1, 1005), range(2000, 2002))

    def test_the_journal_of_format_3(self) -> None:
        layout = read_journal_of_format_2((HERE / "disk-3.journal").read_bytes())
        assert layout is not None
        (file,) = layout.partitions[2].files
        assert file == make_disk.spans_entry(8, 10, merged_from=1_600_000_000_000)
        assert (file.index_count, file.has_spans) == (1006, True)
        assert file.newest_times == [1_600_000_000_000, 1_700_000_000_000]

    @pytest.mark.parametrize("name", ["disk.wal", "disk-2.wal", "disk.seg"])
    def test_before_spans_each_entry_covers_one_index(self, name: str) -> None:
        data = (HERE / name).read_bytes()
        batches = [read_segment(data)] if name.endswith("seg") else []
        if not batches:
            batches = [each.entries for batch in read_wal(data) for each in batch.sections]
        assert {span for entries in batches for span in entries.spans.tolist()} == {1}

    @pytest.mark.parametrize("read", [read_wal, read_segment], ids=["wal", "segment"])
    def test_before_spans_a_span_is_an_epoch_that_is_too_large(
        self, read: Callable[[bytes], object]
    ) -> None:
        """Version and content contradict each other, or somebody used such epochs."""
        segment = make_disk.segment_with_spans()
        newer = make_disk.wal_of_format_3(major=1) if read is read_wal else segment
        head = dataclasses.replace(Head.from_bytes(newer, "a/path"), major=1)
        with pytest.raises(Invalid, match="under epoch") as caught:
            read(head.to_bytes() + newer[64:])
        assert "version of stratalog that wrote it" in caught.value.hint

    def test_what_a_clean_close_leaves(self) -> None:
        assert read_closed((HERE / "disk.closed").read_bytes()) == make_disk.closed()

    def test_the_identity(self, tmp_path: Path) -> None:
        (tmp_path / "DISK").write_bytes((HERE / "disk.json").read_bytes())
        assert read_identity(LocalFiles(tmp_path)) == Identity(make_disk.DISK.hex(), 1)


class TestAnyBytes:
    """Of what is damaged, what is read was stored: a beginning of a file that grows, or all."""

    @given(st.data())
    def test_wal(self, data: st.DataObject) -> None:
        stored = data.draw(st.sampled_from([make_disk.wal(), make_disk.wal_written_over()]))
        found = value_of(lambda: read_wal(data.draw(damaged(stored))))
        sections = [list(batch.sections) for batch in found or []]
        assert sections == make_disk.sections()[: len(sections)]

    @given(st.data())
    def test_segment(self, data: st.DataObject) -> None:
        found = value_of(lambda: read_segment(data.draw(damaged(make_disk.segment()))))
        assert found is None or found == make_disk.ENTRIES

    @given(st.data())
    def test_wal_of_format_3(self, data: st.DataObject) -> None:
        found = value_of(lambda: read_wal(data.draw(damaged(make_disk.wal_of_format_3()))))
        sections = [list(batch.sections) for batch in found or []]
        assert sections == make_disk.sections_of_format_3()[: len(sections)]

    @given(st.data())
    def test_segment_with_spans(self, data: st.DataObject) -> None:
        stored = make_disk.segment_with_spans()
        found = value_of(lambda: read_segment(data.draw(damaged(stored))))
        assert found is None or found == make_disk.SPANS

    @given(st.data())
    def test_checkpoint(self, data: st.DataObject) -> None:
        stored = make_disk.checkpoint_bytes()
        found = value_of(lambda: read_whole_checkpoint(data.draw(damaged(stored))))
        assert found is None or found == (make_disk.checkpoint(), make_disk.STATE)

    @given(st.data())
    def test_journal(self, data: st.DataObject) -> None:
        found = value_of(lambda: read_journal(data.draw(damaged(make_disk.journal()))))
        layouts = accumulate(
            make_disk.edits(), lambda layout, edit: apply(layout, edit, ""), initial=Layout()
        )
        assert found is None or found in layouts

    @given(st.data())
    def test_journal_of_format_2(self, data: st.DataObject) -> None:
        stored = make_disk.journal_of_format_2()
        damage = data.draw(damaged(stored))
        found = value_of(lambda: read_journal_of_format_2(damage))
        layouts = accumulate(
            make_disk.edits_of_format_2(),
            lambda layout, edit: apply(layout, edit, ""),
            initial=Layout(),
        )
        assert found is None or found in layouts

    @given(st.data())
    def test_closed(self, data: st.DataObject) -> None:
        stored = make_disk.closed().to_bytes(make_disk.DISK)
        damage = data.draw(damaged(stored))
        found = value_of(lambda: read_closed(damage))
        assert found is None or damage == stored

    @pytest.mark.parametrize("name", sorted(READERS))
    def test_cut_off_anywhere(self, name: str) -> None:
        stored = make_disk.files()[name]
        for length in range(len(stored)):
            found = value_of(partial(READERS[name], stored[:length]))
            assert found is None or name in GROWING

    @given(st.binary(max_size=200))
    def test_random_bytes(self, noise: bytes) -> None:
        for read in READERS.values():
            assert value_of(partial(read, noise)) is None

    @given(st.data())
    def test_head(self, data: st.DataObject) -> None:
        stored = make_disk.segment()[:64]
        damage = data.draw(damaged(stored))
        found = value_of(lambda: Head.from_bytes(damage, "a/path"))
        assert found is None or damage[:64] == stored

    def test_every_single_bit_of_a_head(self) -> None:
        for bit in range(8 * 64):
            stored = bytearray(make_disk.checkpoint_bytes()[:64])
            stored[bit // 8] ^= 1 << bit % 8
            with pytest.raises(Corrupt):
                Head.from_bytes(bytes(stored), "a/path")

    def test_a_newer_major_is_refused_as_such_and_a_newer_minor_is_read(self) -> None:
        stored = bytearray(make_disk.checkpoint_bytes()[:64])
        for at, is_read in ((10, True), (8, False)):
            stored[at] += 1
            stored[60:] = crc32(stored[:60]).to_bytes(4, "little")
            if is_read:
                Head.from_bytes(bytes(stored), "a/path")
            else:
                with pytest.raises(Invalid, match="format 2"):
                    Head.from_bytes(bytes(stored), "a/path")

    @given(st.binary(max_size=80) | damaged(b'{"disk":"' + b"0" * 32 + b'","format":1}'))
    def test_identity(self, data: bytes) -> None:
        class OneFile(LocalFiles):
            def exists(self, path: str) -> bool:
                return True

            def open(self, path: str) -> Any:
                return Bytes(data)

        try:
            found = read_identity(OneFile("."))
        except Corrupt as error:
            assert error.path == "DISK"  # noqa: PT017
        except Invalid as error:
            assert "newer version" in error.hint  # noqa: PT017
        else:
            assert found is not None
            assert len(bytes.fromhex(found.disk)) == 16
            assert found.format == 1

    @given(st.binary(max_size=60) | damaged(make_disk.LIVE.to_bytes()))
    def test_live_set(self, data: bytes) -> None:
        class OneFile(LocalFiles):
            def open(self, path: str) -> Any:
                return Bytes(data)

        assert read_live(OneFile("."), "a.ckpt") in (None, EMPTY, make_disk.LIVE)


class TestFramesWithAnyContent:
    """Whole frames around anything: a wrong program wrote them, and no other error is raised."""

    def frame(self, descriptor: bytes, body: bytes = b"") -> bytes:
        head = Head(b"WAL1", make_disk.DISK, make_disk.NONCE, 1, 1).to_bytes()
        return head + frame_head(make_disk.NONCE, 1, descriptor, len(body)) + descriptor + body

    @given(st.data(), st.binary(max_size=30))
    def test_a_batch(self, data: st.DataObject, body: bytes) -> None:
        whole = make_disk.wal()
        head = Head.from_bytes(whole, "a/path")
        found: list[Frame] = list(frames(whole, head.nonce, head.first, "a/path", lambda _: True))
        descriptor = data.draw(st.binary(max_size=80) | damaged(bytes(found[0].descriptor)))
        assert len(read_wal(self.frame(descriptor, body))) <= 1

    @given(st.data())
    def test_an_edit(self, data: st.DataObject) -> None:
        edit = data.draw(st.sampled_from([*make_disk.edits(), *make_disk.edits_of_format_3()]))
        descriptor = data.draw(st.binary(max_size=80) | damaged(encode_edit(edit)))
        found = value_of(lambda: decode_edit(descriptor, "a/path"))
        if found is not None:
            assert decode_edit(encode_edit(found), "a/path") == found

    @given(
        st.recursive(
            st.none()
            | st.integers(-(2**63), 2**64 - 1)
            | st.text(max_size=5)
            | st.binary(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.integers(0, 9) | st.text(max_size=5), inner, max_size=3)
            ),
            max_leaves=6,
        ),
        st.data(),
    )
    def test_an_edit_with_any_value_in_any_place(self, value: object, data: st.DataObject) -> None:
        edit = data.draw(st.sampled_from([*make_disk.edits(), *make_disk.edits_of_format_3()]))
        plain: Any = msgspec.msgpack.decode(encode_edit(edit), strict=False)
        place = plain
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
                place = place[key]
                continue
            place[key] = value
            break
        found = value_of(lambda: decode_edit(msgspec.msgpack.encode(plain), "a/path"))
        if found is not None:
            value_of(lambda: apply(Layout(), found, "a/path"))

    def test_a_journal_that_is_empty_was_never_used(self, tmp_path: Path) -> None:
        (tmp_path / "journal").mkdir()
        for data in (b"", make_disk.journal()[:64], make_disk.journal()[:80], bytes(64)):
            (tmp_path / "journal" / "1.journal").write_bytes(data)
            assert replay_journal(LocalFiles(tmp_path), make_disk.DISK) is None
