"""Names, notes and stored bytes from anywhere: each gives a value or an error of ours."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import stratalog as sl
from objectlog.whole_log import run
from stratalog.errors import Corrupt, StratalogError
from stratalog.objectlog.backup.backup_state import RestoringMark, StoredBackup
from stratalog.objectlog.erasure.certificate import decode_certificate
from stratalog.objectlog.holds.cursor import StoredCursor
from stratalog.objectlog.holds.stored_pin import StoredPin
from stratalog.objectlog.holds.upload_guard import StoredUploadGuard
from stratalog.objectlog.stored import Garbage, Manifest, Policy, Snapshot
from stratalog.objectlog.stored.stored_json import StoredObject, decode_document

TEXTS = st.text(st.characters(), max_size=30) | st.sampled_from(
    ["\ud800", "a\udfff", "\0", "../x", "a/b", "", " ", "\n", "x" * 100_000, "٣", "é"]
)
KINDS: list[type[StoredObject]] = [
    Manifest,
    Snapshot,
    StoredCursor,
    StoredPin,
    StoredUploadGuard,
    Policy,
    Garbage,
    StoredBackup,
    RestoringMark,
]
DEEP = 200_000
BOMBS = {
    "lists": b"[" * DEEP,
    "closed lists": b"[" * DEEP + b"]" * DEEP,
    "objects": b'{"a":' * DEEP,
    "an unknown field": b'{"unknown":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "a known field": b'{"snapshots":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "a number": b'{"acc_bytes":' + b"9" * 100_000 + b"}",
    "an exponent": b'{"acc_bytes":1e999999}',
    "an offset": b'{"position":{"offset":' + b"9" * 5_000 + b'},"epoch_us":1,"writer":"w"}',
    "half a character": b'{"writer":"\\ud800"}',
    "bytes": b'{"writer":"\xed\xa0\x80"}',
    "closing": b'{"a":' + b"[" * DEEP + b',"xxh3_of":"a","xxh3":"' + b"0" * 32 + b'"}',
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused(kind: type[StoredObject], bomb: str) -> None:
    """Or it is a field that this kind does not know, which is kept as it is."""
    for decode in (kind.from_json, lambda data: decode_document(kind, data)):
        try:
            found = decode(BOMBS[bomb])
        except Corrupt:
            continue
        assert kind is Policy
        assert len(found.to_json()) == len(BOMBS[bomb])


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_certificate_that_is_a_bomb_is_refused(bomb: str) -> None:
    with pytest.raises(Corrupt):
        decode_certificate(BOMBS[bomb], "certificate/0.json")


Call = Callable[[sl.Store, str], Awaitable[object]]


async def opened_by(store: sl.Store, text: str) -> None:
    async with sl.LogWriter.open(store, writer=text) as log:
        await log.append(b"x")


async def cursors_of(store: sl.Store, text: str) -> object:
    return await sl.CursorStore(store, writer=text).create(f"c{uuid.uuid4().hex}", 1)


async def pins_of(store: sl.Store, text: str) -> object:
    return await sl.PinStore(store, owner=text).create(f"p{uuid.uuid4().hex}")


async def herd_with(store: sl.Store, text: str) -> object:
    async with sl.Herd.open(store, server="a") as herd:
        return await herd.create(text)


CALLS: dict[str, Call] = {
    "cursor": lambda store, text: sl.CursorStore(store).create(text, 1),
    "cursor load": lambda store, text: sl.CursorStore(store).load(text),
    "cursor writer": cursors_of,
    "pin": lambda store, text: sl.PinStore(store).create(text),
    "pin owner": pins_of,
    "pin note": lambda store, text: sl.PinStore(store).create(uuid.uuid4().hex, note=text),
    "writer": opened_by,
    "seal note": lambda store, text: sl.Sealer(store).migrate(f"memory://{uuid.uuid4()}", text),
    "guard owner": lambda store, text: sl.UploadGuard.register(store, owner=text),
    "guard note": lambda store, text: sl.UploadGuard.register(store, note=text),
    "guard query": lambda store, text: sl.UploadGuard.register(store, query=text, batch=0),
    "guard job": lambda store, text: sl.UploadGuard.register(store, job=text),
    "revoke": lambda store, text: sl.sweep(store, revoke=[text]),
    "backup note": lambda store, text: sl.backup(store, f"memory://{uuid.uuid4()}", note=text),
    "backup id": lambda store, text: sl.restore(store, f"memory://{uuid.uuid4()}", backup=text),
    "certificate": lambda store, text: sl.load_certificate(store, text),
    "herd log": herd_with,
    "log name": lambda _, text: sl.create_log(f"memory://{uuid.uuid4()}", name=text),
    "url": lambda _, text: sl.create_log(f"memory://{uuid.uuid4()}/{text}"),
    "store path": lambda store, text: store.put_if_absent(f"notes/{text}", b""),
}


@pytest.mark.parametrize("call", CALLS)
@settings(max_examples=25, deadline=None)
@given(TEXTS)
@example("\ud800")
@example("a\udfff")
def test_any_text_is_taken_or_refused(call: str, text: str) -> None:
    async def main() -> None:
        store = sl.open_store(f"memory://{uuid.uuid4()}")
        async with sl.LogWriter.open(store, create=True) as log:
            await log.append(b"x")
        try:
            await CALLS[call](store, text)
        except StratalogError as error:
            f"{error} {error.hint}".encode(errors="surrogatepass")
        assert (await sl.scrub(store)).clean

    run(main())
