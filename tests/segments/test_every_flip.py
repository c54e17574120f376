"""Damage is never silent: every flip of a bit, and every cut, in every state of a directory.

Each is named by a check, as damage or as a remark. Opening refuses it and changes nothing, or shows
what was promised: all of it, or, if the last batch of the WAL may be torn, all but that batch.

What a former life of a WAL file has left behind the last batch counts for nothing. A flip in it
need not be named.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from segments.states import State, content, last_batch_of, opened_shows, states, tiny
from stratalog.errors import Corrupt, StratalogError
from stratalog.segments.format.data_directory import DOUBT
from stratalog.segments.format.frame import GROWING_MAJOR
from stratalog.segments.inspect.check import begin_check
from stratalog.segments.inspect.damage import CheckReport, DiskDamageKind
from stratalog.segments.inspect.info import _inspect
from stratalog.testing import SimulatedFiles

THOROUGHLY = "STRATALOG_EVERY_BIT" in os.environ
"""All eight bits of each byte, and more openings. Otherwise one bit of each."""
OPENED_EACH = 11 if THOROUGHLY else 29
CUTS_EACH = 1 if THOROUGHLY else 7


@pytest.fixture(autouse=True)
def tiny_journals() -> Iterator[None]:
    with tiny():
        yield


@pytest.fixture(params=sorted(states()))
def state(request: pytest.FixtureRequest) -> State:
    return states()[request.param]


def check_files(files: SimulatedFiles) -> CheckReport:
    """``check_disk`` without its threads."""
    begun = begin_check(files)
    if isinstance(begun, CheckReport):
        return begun
    with contextlib.closing(begun.seen.files):
        for work in begun.parts():
            work()
        return begun.report(files)


@dataclass(frozen=True)
class Damage:
    """A flipped bit, or the size to which a file was cut."""

    path: str
    at: int
    mask: int = 0

    def on(self, files: SimulatedFiles) -> SimulatedFiles:
        """The directory with this damage."""
        damaged = files.after_kill()
        if self.mask:
            damaged.damage(self.path, self.at, self.mask)
        else:
            damaged.truncate(self.path, self.at)
        return damaged


def flips(state: State) -> Iterator[Damage]:
    for path in state.reached():
        for at in range(state.files.size_of(path)):
            for bit in range(8) if THOROUGHLY else [(at * 5 + 3) % 8]:
                yield Damage(path, at, 1 << bit)


def cuts(state: State) -> Iterator[Damage]:
    for path in state.reached():
        if state.is_of_format_1 and path.startswith(("journal/", "wal/")):
            continue  # nothing says what size they had
        size = state.files.size_of(path)
        for at in range(0, size, CUTS_EACH):
            yield Damage(path, at)
        yield Damage(path, size - 1)


def test_every_flip_is_named_and_none_is_served(state: State) -> None:
    must_be_found(state, list(flips(state)))


def test_every_cut_is_named_and_none_is_served(state: State) -> None:
    must_be_found(state, list(cuts(state)))


def must_be_found(state: State, damages: list[Damage]) -> None:
    whole = check_files(state.copy())
    before, unnamed = facts_of(whole), []
    for number, damage in enumerate(damages):
        damaged = damage.on(state.files)
        report = check_files(damaged)
        if facts_of(report) <= before:
            if state.is_of_a_former_life(damage.path, damage.at) and damage.mask:
                if number % OPENED_EACH == 0:
                    assert opened_shows(damaged) == state.shown, damage
            elif not is_told_already(whole, damage):
                unnamed.append(damage)
        elif number % OPENED_EACH == 0:
            must_not_be_served(state, damage, damaged, report)
    assert not unnamed, f"{len(unnamed)} of {len(damages)}: {unnamed[:10]}"


def is_told_already(whole: CheckReport, damage: Damage) -> bool:
    """Whether the byte is one of a write that failed, which are remarked upon in any case."""
    kinds = {DiskDamageKind.WAL_REST, DiskDamageKind.JOURNAL_REST}
    rests = [each for each in whole.remarks if each.kind in kinds]
    return any(each.path == damage.path and damage.at >= (each.byte or 0) for each in rests)


def facts_of(report: CheckReport) -> set[tuple[str, str, int | None, str]]:
    found = [*report.damages, *report.remarks]
    return {(each.kind.value, each.path, each.byte, each.detail) for each in found}


def must_not_be_served(
    state: State, damage: Damage, damaged: SimulatedFiles, report: CheckReport
) -> None:
    opened, before = damaged.after_kill(), all_files(damaged)
    try:
        shown = opened_shows(opened)
    except Corrupt:
        now = all_files(opened)
        if damage.path.startswith(("seg/", "ckpt/")):  # refused when it is read
            assert now[damage.path] == before[damage.path], damage
        else:
            assert now == before, damage
        assert not report.clean, damage
        return
    except StratalogError as error:
        raise AssertionError(damage) from error
    if shown != state.shown:
        assert not state.is_closed, damage
        assert shown in state.others, damage
        kinds = {each.kind.value for each in report.remarks}
        assert kinds & {"wal-doubtful", "journal-rest", "journal-doubtful"}, damage


def all_files(files: SimulatedFiles) -> dict[str, bytes]:
    copy = files.after_kill()
    return {path: content(copy, path) for path in copy.names() if path != "LOCK"}


def test_doubtful_bytes_are_kept_aside(state: State) -> None:
    """Of a flip in the last batch, unless it was closed cleanly."""
    last = last_batch_of(state.files)
    if last is None or state.is_closed:
        return
    path, at, end = last
    damaged = Damage(path, at + 50, 4).on(state.files)
    whole = content(damaged.after_kill(), path)
    assert opened_shows(damaged) == state.others[0]
    (kept,) = [path for path in damaged.names() if path.startswith(f"{DOUBT}/")]
    assert kept == f"{DOUBT}/{path.removeprefix('wal/')}.{at}"
    assert content(damaged.after_kill(), kept) == whole[at:end]


def test_a_sector_with_both_copies_of_the_last_record_is_doubtful(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An acknowledged record may be in it. One copy alone is not: the other has all of it."""
    state = states()["empty_partition-crashed"]
    (path,) = [each for each in state.files.names() if each.startswith("journal/")]
    data = content(state.copy(), path)
    second = data.rfind(b"SLFR")
    first = data.rfind(b"SLFR", 0, second)
    files = state.copy()
    files.damage(path, first, b"\xff" * (second + 10 - first))
    damaged = content(files.after_kill(), path)
    kinds = {each.kind for each in check_files(files.after_kill()).remarks}
    assert kinds == {DiskDamageKind.JOURNAL_DOUBTFUL}
    assert doubtful_spans(files) == [(path, first, False)]
    assert opened_shows(files) == {}
    kept = f"{DOUBT}/{path.removeprefix('journal/')}.{first}"
    assert content(files.after_kill(), kept) == damaged[first:].rstrip(b"\0")
    assert kept in caplog.text
    assert doubtful_spans(files) == [(kept, 0, True)]
    only_second = Damage(path, second + 10, 1).on(state.files)
    assert doubtful_spans(only_second) == []
    assert opened_shows(only_second) == state.shown


def doubtful_spans(files: SimulatedFiles) -> list[tuple[str, int, bool]]:
    found = _inspect(files.after_kill()).doubtful
    return [(each.path, each.position, each.is_kept) for each in found]


def test_a_last_wal_file_of_format_1_that_may_have_been_cut_is_remarked_upon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = states()["several_batches-format-1"]
    (wal,) = state.layout().wals
    data = content(state.copy(), wal.path)
    places = [at for at in range(64, len(data)) if data[at : at + 4] == b"SLFR"]
    for at in range(64, places[-1] + 1):
        report = check_files(Damage(wal.path, at).on(state.files))
        assert [each.kind for each in report.remarks] == [DiskDamageKind.WAL_DOUBTFUL]
    opened_shows(Damage(wal.path, 64).on(state.files))
    assert "if it was cut off, entries are lost" in caplog.text


@pytest.mark.parametrize("name", [name for name in states() if "-format-" in name])
def test_a_directory_of_an_older_format_becomes_one_of_this_format(name: str) -> None:
    files = states()[name].copy()
    assert opened_shows(files) == states()[name].shown
    journals = [path for path in files.names() if path.startswith("journal/")]
    assert [content(files.after_kill(), path)[8] for path in journals] == [GROWING_MAJOR]
    assert opened_shows(files.after_kill(), seed=10) == states()[name].shown
