"""Where a soak puts the forks of its log, and that nothing of them is left."""

from __future__ import annotations

from pathlib import Path

import stratalog as sl
from objectlog.whole_log import run
from objectlog.wrapped_stores import PassingStore
from stratalog.objectlog.branch.destroy_log import destroy
from stratalog.soak.places import place_beside, remove_empty_folders
from stratalog.store import MemoryStore, PrefixedStore


def url_beside(store: sl.Store) -> str | None:
    place = place_beside(store, "fork")
    return None if place is None else place.url


def test_a_fork_lies_beside_its_log_on_the_same_store(tmp_path: Path) -> None:
    directory = tmp_path / "a log"
    assert url_beside(sl.open_store(directory)) == (tmp_path / "a log-fork").as_uri()
    assert url_beside(sl.open_store("memory://places")) == "memory://places-fork"
    assert url_beside(sl.open_store("memory://places/a/b")) == "memory://places/a/b-fork"


def test_a_store_without_room_beside_it_has_no_place_for_forks() -> None:
    assert url_beside(MemoryStore()) is None
    assert url_beside(PassingStore(MemoryStore())) is None
    assert url_beside(PrefixedStore(PassingStore(MemoryStore()), "log")) is not None


def test_empty_folders_go_and_others_stay(tmp_path: Path) -> None:
    destroyed, kept = tmp_path / "destroyed", tmp_path / "kept"
    for place in (destroyed, kept):
        run(sl.create_log(place))
    run(destroy(destroyed))
    assert destroyed.exists()
    for place in (destroyed, kept):
        remove_empty_folders(sl.open_store(place))
    remove_empty_folders(sl.open_store("memory://places"))
    assert not destroyed.exists()
    assert (kept / "manifest" / "MANIFEST").exists()
