"""The end of a document: what it notices, and what of format 1.0 must not pass for damage."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fixtures import make
from stratalog import Manifest
from stratalog.errors import Corrupt
from stratalog.objectlog.holds.cursor import StoredCursor
from stratalog.objectlog.stored.manifest import decode_manifest, encode_manifest
from stratalog.objectlog.stored.object_digest import check_bytes, with_digest
from stratalog.objectlog.stored.stored_json import StoredObject, decode_document
from stratalog.store.closing import close_json, open_json

BARE = b'{"a":[1,2],"xxh3_in_text":",\\"xxh3\\":","write_id":"0123456789ab"}'
CLOSED = close_json(BARE, "0123456789ab")


def flips(data: bytes) -> list[bytes]:
    """The data with every single bit flipped, one at a time."""
    found: list[bytes] = []
    for position in range(len(data)):
        for bit in range(8):
            bad = bytearray(data)
            bad[position] ^= 1 << bit
            found.append(bytes(bad))
    return found


def rewritten_by_1_0(data: bytes, kind: type[StoredObject], **changes: object) -> bytes:
    """What software of 1.0 makes of an object: another version, with the fields it does not know.

    It decodes without looking at the end, which is among these fields, and so stores it again.
    """
    value: Any = kind.from_json(data)
    assert {"xxh3", "xxh3_of"} <= {*value.unknown}
    return bytes(msgspec.structs.replace(value, **changes).to_json())


def test_what_was_closed_opens() -> None:
    assert open_json(CLOSED, "a/path") == BARE
    assert msgspec.json.decode(CLOSED)["xxh3_of"] == "0123456789ab"


def test_an_object_without_an_end_is_one_of_format_1_0() -> None:
    assert open_json(BARE, "a/path") == BARE
    assert open_json(open_json(CLOSED, None), None) == BARE


def test_every_flipped_bit_of_a_document_is_damage() -> None:
    for bad in flips(CLOSED):
        with pytest.raises((Corrupt, ValueError)):
            msgspec.json.decode(open_json(bad, "a/path"))


def test_every_cut_of_a_document_is_damage() -> None:
    for length in range(len(CLOSED)):
        with pytest.raises((Corrupt, ValueError)):
            msgspec.json.decode(open_json(CLOSED[:length], "a/path"))


@pytest.mark.parametrize(
    "bad",
    [
        CLOSED.replace(b'"xxh3_of":"0123456789ab",', b""),
        CLOSED.partition(b',"xxh3":')[0] + b"}",
        CLOSED[:-1] + b',"more":1}',
        CLOSED.replace(b'{"a"', b'{"b":0,"a"'),
        CLOSED.replace(b'"xxh3_of":"0123456789ab"', b'"xxh3_of":"0123456789a0"'),
        CLOSED.replace(b'"write_id":"0123456789ab"', b'"write_id":"f123456789ab"'),
        CLOSED.replace(b'"write_id":"0123456789ab"', b'"write_id":7'),
    ],
    ids=[
        "one-half",
        "other-half",
        "not-last",
        "changed",
        "digit-of-it",
        "digit-of-id",
        "no-id",
    ],
)
def test_anything_else_is_damage_too(bad: bytes) -> None:
    with pytest.raises(Corrupt, match="does not hold the bytes that were stored") as caught:
        open_json(bad, "a/path")
    assert caught.value.path == "a/path"


@pytest.mark.parametrize("name", make.documents_1_1())
def test_a_document_that_software_of_1_0_has_rewritten_is_no_damage(name: str) -> None:
    value = make.documents_1_1()[name]
    stored = (make.HERE / name).read_bytes()
    rewritten = rewritten_by_1_0(stored, type(value), write_id="fedcba987654")
    found = decode_document(type(value), rewritten, name)
    assert found == msgspec.structs.replace(value, write_id="fedcba987654")
    again = close_json(found.to_json(), "fedcba987654")
    assert decode_document(type(value), again, name) == found
    assert again.count(b'"xxh3_of":"fedcba987654"') == 1, "the end of 1.0's version is gone"


def test_software_of_1_0_that_rewrites_a_log_keeps_the_digests_of_its_entries() -> None:
    before = make.manifest_1_1()
    rewritten = rewritten_by_1_0(encode_manifest(before), Manifest, write_id="fedcba987654")
    after = decode_manifest(rewritten)
    assert after.entries == before.entries
    assert check_bytes((make.HERE / "fragment.parquet").read_bytes(), after.fragments[0])


def test_an_entry_that_software_of_1_0_gave_another_object_counts_as_one_without_digest() -> None:
    entry = make.manifest_1_1().fragments[0]
    elsewhere = msgspec.structs.replace(entry, path=entry.path.replace("-3/", "-4/"))
    assert elsewhere.path != entry.path
    assert not check_bytes(b"other bytes", elsewhere)


@pytest.mark.parametrize(
    "changes", [{"xxh3_of": None}, {"xxh3": None}, {"xxh3_of": "0"}, {"xxh3": "0" * 32}]
)
def test_half_a_digest_in_an_entry_is_damage(changes: dict[str, str | None]) -> None:
    entry = make.manifest_1_1().fragments[0]
    if changes.get("xxh3_of") == "0":
        assert entry.xxh3_of is not None
        first = "0" if entry.xxh3_of[0] != "0" else "1"
        changes = {"xxh3_of": first + entry.xxh3_of[1:]}
    data = (make.HERE / "fragment.parquet").read_bytes()
    assert check_bytes(data, entry)
    with pytest.raises(Corrupt):
        check_bytes(data, msgspec.structs.replace(entry, **changes))
    assert not check_bytes(data, with_digest(entry, None))


def test_a_cursor_as_wal3_writes_it_has_no_end() -> None:
    stored = (make.HERE / "cursor.json").read_bytes()
    assert decode_document(StoredCursor, stored) == make.cursor()
