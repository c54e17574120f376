"""Notes about other logs in a manifest, and pins: any bytes give a value or a typed refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import make
from formats.test_any_bytes import attempt, damaged
from stratalog import Manifest, Setsum, Snapshot
from stratalog.errors import Corrupt, Invalid, Unavailable
from stratalog.objectlog.holds.fork_note import note_of
from stratalog.objectlog.holds.stored_pin import decode_pin
from stratalog.objectlog.stored.copy_note import copy_note_of
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, decode_manifest
from stratalog.objectlog.stored.seal import is_being_destroyed, predecessor_of, seal_of
from stratalog.setsum import EMPTY

HERE = Path(make.__file__).parent
NOTED = [
    make.sealed_manifest().to_json(),
    make.forked_manifest().to_json(),
    make.forked_manifest(of_wal3=True).to_json(),
    make.copied_manifest().to_json(),
]
READERS: list[Callable[[Manifest], object]] = [
    seal_of,
    predecessor_of,
    note_of,
    copy_note_of,
    is_being_destroyed,
]


def golden(name: str) -> Manifest:
    return decode_manifest((HERE / name).read_bytes())


class TestGoldenNotes:
    def test_a_seal_and_both_of_its_links(self) -> None:
        manifest = golden("manifest-sealed.json")
        seal, before = seal_of(manifest), predecessor_of(manifest)
        assert seal is not None
        assert seal.successor is not None
        assert before is not None
        assert (seal.sealed_us, seal.writer, seal.note) == (1700000000000000, "golden", "full")
        assert seal.successor.url == "s3://bucket/next"
        assert (before.url, before.id) == ("s3://bucket/before", "ba9876543212")
        assert not is_being_destroyed(manifest)

    @pytest.mark.parametrize(
        ("name", "held_by"),
        [("manifest-fork.json", "pin"), ("manifest-fork-of-wal3.json", "cursor")],
    )
    def test_a_fork_and_what_it_shares(self, name: str, held_by: str) -> None:
        manifest = golden(name)
        note = note_of(manifest)
        assert note is not None
        assert (note.source, note.at, note.state) == ("s3://bucket/source", 100, "open")
        assert (note.held_by, note.pin) == (held_by, "fork_ba9876543211")
        assert [entry.base for entry in manifest.entries] == ["s3://bucket/source", None]

    def test_a_node_of_a_fork_names_the_log_of_its_children(self) -> None:
        node = Snapshot.from_json((HERE / "snapshot-fork.json").read_bytes())
        node.check(make.snapshot().pointer())
        assert {child.base for child in node.entries} == {"s3://bucket/source"}

    def test_a_copy(self) -> None:
        manifest = golden("manifest-copy.json")
        note = copy_note_of(manifest)
        assert note is not None
        assert (note.source, note.start, note.limit) == ("s3://bucket/source", 1, 103)
        assert (note.setsum, note.state) == (manifest.setsum, "done")

    def test_pins(self) -> None:
        held = decode_pin((HERE / "pin.json").read_bytes(), "pin/golden.json")
        assert (held.start.offset, held.limit.offset) == (20, 90)
        assert held.as_manifest().setsum == Setsum.of(b"A", b"B")
        assert held.is_past(1700003600000000)
        assert not held.is_past(1700003599999999)
        cleared = decode_pin((HERE / "pin-cleared.json").read_bytes(), "pin/golden.json")
        assert cleared.is_cleared
        assert cleared.as_manifest().setsum == EMPTY

    @pytest.mark.parametrize("state", ["forking", "aborted", "copying"])
    def test_a_log_that_is_not_complete_says_what_to_do(self, state: str) -> None:
        field = "copy" if state == "copying" else "fork"
        manifest = Manifest.from_json(
            make.tied_manifest().to_json()[:-1] + f',"{field}":{{"state":"{state}"}}}}'.encode()
        )
        with pytest.raises(Unavailable, match=f"the {field} at here is not complete: {state}"):
            manifest.check_open("here")


@given(st.data())
def test_damaged_notes_are_read_or_refused(data: st.DataObject) -> None:
    damage = data.draw(damaged(data.draw(st.sampled_from(NOTED))))
    try:
        manifest = decode_manifest(damage)
    except (Corrupt, Invalid):
        return
    for read in READERS:
        try:
            read(manifest)
        except Corrupt as error:
            assert error.path == MANIFEST_PATH  # noqa: PT017
    try:
        manifest.check_open("here")
    except Unavailable as error:
        assert error.hint  # noqa: PT017


@given(st.data())
def test_damaged_pins_are_read_or_refused(data: st.DataObject) -> None:
    damage = data.draw(damaged(make.pin().to_json()))
    try:
        pin, refusal = attempt(lambda: decode_pin(damage, "pin/golden.json"))
    except Invalid as error:
        # Damage may look like a newer format, which is refused as such.
        assert error.hint == "Upgrade stratalog."  # noqa: PT017
        return
    if pin is None:
        assert refusal == "pin/golden.json"
    else:
        held = pin.as_manifest()
        assert held.setsum == Setsum.total(entry.setsum for entry in pin.entries)
        assert pin.is_cleared is (pin.released and not pin.entries)
