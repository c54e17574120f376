"""Putting bugs in on purpose, and looking for the seed that finds them.

A bug is planted by replacing something by its name. When the product does not use that name any
more, nothing is broken, and the simulation would look weak although it is the plant that is dead.
So what was replaced has to be used, or it is told that it was not.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import NamedTuple
from unittest.mock import patch

from simulation.promises import PromiseBroken
from stratalog.errors import Corrupt
from stratalog.testing import HistoryViolation, SimulationError

NOTICED = (HistoryViolation, PromiseBroken, SimulationError, Corrupt, AssertionError)

Plant = Callable[[], AbstractContextManager[None]]


class DeadPlant(Exception):
    """Something was replaced that nobody uses."""


class Unnoticed(Exception):
    """No seed finds a bug that was planted."""


class Uses:
    """How often what was replaced has been used."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()

    def expect(self, name: str) -> None:
        self._count[name] += 0

    def note(self, name: str) -> None:
        self._count[name] += 1

    @property
    def unused(self) -> list[str]:
        return sorted(name for name, count in self._count.items() if not count)

    def check(self) -> None:
        """Raise ``DeadPlant`` if something was never used."""
        told = [f"{name} was replaced but never called" for name in self.unused]
        if told:
            raise DeadPlant("; ".join(told))


_counting: list[Uses] = []
"""The searches that are under way. The innermost counts."""


@contextmanager
def counted() -> Iterator[Uses]:
    """Count uses of all that is replaced meanwhile; whoever counts also checks."""
    uses = Uses()
    _counting.append(uses)
    try:
        yield uses
    finally:
        _counting.pop()


@contextmanager
def plant(
    owner: object, name: str, replacement: Callable[..., object] | tuple[object, ...]
) -> Iterator[None]:
    """Replace a function, a method or a tuple.

    Raises ``DeadPlant`` at the end if nobody has called or read it, unless uses are counted
    over several of them: see ``counted``.
    """
    uses = _counting[-1] if _counting else Uses()
    label = f"{_name_of(owner)}.{name}"
    uses.expect(label)
    try:
        with patch.object(owner, name, _noting(replacement, functools.partial(uses.note, label))):
            yield
    finally:  # also if a test fails because nothing is broken: this is why
        if not _counting:
            uses.check()


def _name_of(owner: object) -> str:
    if isinstance(owner, ModuleType):
        return owner.__name__
    return owner.__qualname__ if isinstance(owner, type) else type(owner).__qualname__


def _noting(
    replacement: Callable[..., object] | tuple[object, ...], note: Callable[[], None]
) -> object:
    """The replacement, and it is noted whenever it is used."""
    if isinstance(replacement, tuple):
        return _NotingTuple(replacement, note)

    @functools.wraps(replacement)
    def noting(*args: object, **options: object) -> object:
        note()
        return replacement(*args, **options)

    return noting


class _NotingTuple(tuple[object, ...]):
    """A tuple that tells when somebody goes through it."""

    _note: Callable[[], None]

    def __new__(cls, items: tuple[object, ...], note: Callable[[], None]) -> _NotingTuple:
        made = super().__new__(cls, items)
        made._note = note
        return made

    def __iter__(self) -> Iterator[object]:
        self._note()
        return super().__iter__()


class Found(NamedTuple):
    """The first seed that notices a bug, and the kind of error with which it does."""

    seed: int
    by: str


def first_seed_that_finds(bug: Plant, run_seed: Callable[[int], str], seeds: int) -> Found:
    """Look for a bug that was planted, with one seed after the other.

    Raises ``Unnoticed`` if none notices it. Of a bug that replaces several things all have to be
    used by one of the seeds, or it is ``DeadPlant``.
    """
    found: Found | None = None
    with counted() as uses, bug():
        for seed in range(seeds):
            try:
                run_seed(seed)
            except NOTICED as error:
                found = found or Found(seed, type(error).__name__)
            if found is not None and not uses.unused:
                return found
    uses.check()
    raise Unnoticed(f"{bug.__name__} went unnoticed in {seeds} seeds")
