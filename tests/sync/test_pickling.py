"""What travels between processes survives the journey; what cannot travel says so."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path

import pytest

import stratalog as sl
from stratalog import errors, sync
from stratalog.objectlog.holds.cursor import StoredCursor
from stratalog.store import DirectoryStore, MemoryStore, PrefixedStore

ERRORS = [
    each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, errors.StratalogError)
]


def travelled(value: object) -> object:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_keeps_all_it_says(kind: type[errors.StratalogError]) -> None:
    if kind is errors.Trimmed:
        error: errors.StratalogError = errors.Trimmed("gone", first_offset=7)
    else:
        error = kind("message", hint="do this", path="a/b", expected=1, actual={"two": 2})
    for again in (travelled(error), copy.copy(error), error.copy()):
        assert type(again) is kind
        assert isinstance(again, errors.StratalogError)
        assert again.__dict__ == error.__dict__
        assert (str(again), again.kind, again.args) == (str(error), error.kind, error.args)


def test_there_are_all_errors_of_the_design() -> None:
    names = {each.__name__ for each in ERRORS}
    assert names == set(
        "StratalogError NotHappened Conflict Fenced Sealed Full Unknown Trimmed Unavailable "
        "NotFound Exists Denied Closed Corrupt Invalid".split()
    )


FRAGMENT = sl.Fragment(
    path="log/x.parquet",
    seq_no=1,
    start=sl.LogPosition(1, 5),
    limit=sl.LogPosition(2, 5),
    num_bytes=10,
    setsum=sl.Setsum.of(b"A"),
)
MANIFEST = sl.Manifest(
    setsum=sl.Setsum.of(b"A"),
    acc_bytes=10,
    writer="me",
    snapshots=(),
    fragments=(FRAGMENT,),
    write_id="1",
    linked={"a": 1},
)
STRANGE = MANIFEST.to_json().replace(b'{"offset":1,', b'{"offset":1,"new":[1],')[:-1] + (
    b',"seal":{"successor":null},"later":{"a":"\xc3\xa4"}}'
)


@pytest.mark.parametrize(
    "value",
    [
        sl.LogPosition(3, 4),
        sl.Span(sl.LogPosition(3, 4), 9),
        sl.Record(1, 2, b"body"),
        sl.Setsum.of(b"A", b"B"),
        sl.WriterOptions(on_fenced="reopen"),
        sl.ReaderOptions(verify=False),
        sl.Limits(max_files=3),
        FRAGMENT,
        MANIFEST,
        sl.Snapshot(
            path="snapshot/x",
            depth=1,
            setsum=sl.Setsum.of(b"A"),
            writer="me",
            snapshots=(),
            fragments=(FRAGMENT,),
        ),
        StoredCursor(position=sl.LogPosition(1), epoch_us=1, writer="me"),
    ],
)
def test_values_travel(value: object) -> None:
    assert travelled(value) == value


def test_a_manifest_with_fields_of_a_later_version_travels() -> None:
    manifest = sl.Manifest.from_json(STRANGE)
    again = travelled(manifest)
    assert isinstance(again, sl.Manifest)
    assert again.to_json() == manifest.to_json()
    assert b'"later"' in again.to_json()


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = str(tmp_path / "log")
    with sync.LogWriter.open(url, create=True) as log:
        log.append_many([b"one", b"two"])
    return url


def test_a_reader_is_opened_again_with_its_options(url: str) -> None:
    with sync.LogReader.open(url, options=sl.ReaderOptions(verify=False)) as reader:
        sent = pickle.dumps(reader)
        with sync.LogWriter.open(url) as log:
            log.append(b"three")
        assert reader.tail == 3
    again = pickle.loads(sent)
    assert isinstance(again, sync.LogReader)
    with again:
        assert again.tail == 4
        assert again._opened_with["options"] == sl.ReaderOptions(verify=False)
        assert again.to_arrow(2).column("body").to_pylist() == [b"two", b"three"]


@pytest.mark.parametrize("make", [str, Path])
def test_a_relative_path_is_the_same_place_from_another_directory(
    url: str, make: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(Path(url).parent)
    reader = sync.LogReader.open(make("log"))
    cursors = sync.CursorStore(make("log"))
    monkeypatch.chdir("/")
    for opened in (travelled(reader), reader):
        assert isinstance(opened, sync.LogReader)
        assert opened.refresh().tail.offset == 3
    again = travelled(cursors)
    assert isinstance(again, sync.CursorStore)
    assert again.create("here", 1).offset == 1


def test_a_reader_of_this_process_memory_travels_within_the_process() -> None:
    sync.create_log("memory://pickled", exist_ok=True)
    again = travelled(sync.LogReader.open("memory://pickled"))
    assert isinstance(again, sync.LogReader)
    assert again.tail == 1


def test_cursors_and_their_stores_travel_blocking_and_async(url: str) -> None:
    cursors = sync.CursorStore(url, writer="me")
    cursor = travelled(cursors.create("here", 1))
    assert isinstance(cursor, sync.Cursor)
    assert cursor.move(2).writer == "me"
    assert isinstance(travelled(sl.CursorStore(url)), sl.CursorStore)


def test_a_store_that_can_travel_takes_its_reader_along(url: str) -> None:
    again = travelled(sync.LogReader.open(DirectoryStore(url)))
    assert isinstance(again, sync.LogReader)
    assert again.tail == 3


def test_a_store_that_cannot_be_pickled_is_refused_with_a_hint() -> None:
    store = MemoryStore()
    sync.create_log(store)
    for opened in (
        sync.LogReader.open(store),
        sync.CursorStore(store),
        sync.CursorStore(PrefixedStore(store, "a")),
        sl.CursorStore(store),
    ):
        with pytest.raises(errors.Invalid, match="cannot be pickled") as caught:
            pickle.dumps(opened)
        assert "by URL or path" in caught.value.hint


def test_writers_pins_and_async_readers_refuse_to_travel(url: str) -> None:
    async def opened() -> tuple[sl.LogWriter, sl.LogReader]:
        return await sl.LogWriter.open(url), await sl.LogReader.open(url)

    import asyncio

    pins = sync.PinStore(url)
    with sync.LogWriter.open(url) as log:
        for thing in (log, pins, pins.create("held"), *asyncio.run(opened())):
            with pytest.raises(errors.Invalid, match="cannot be pickled") as caught:
                pickle.dumps(thing)
            assert "URL" in caught.value.hint
