"""A bug that is planted where nobody comes by is told, and is not a weakness of the simulation."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from simulation.planting import DeadPlant, Found, Plant, Unnoticed, first_seed_that_finds, plant

SIDES = ("first", "second")


class Product:
    """Something in which bugs can be planted."""

    async def used(self) -> int:
        return 1

    async def unused(self) -> int:
        return 2


async def wrong(_self: Product) -> int:
    return 0


def run_seed(seed: int) -> str:
    """Seeds from 2 on use it, and seeds from 4 on look at what it gives."""
    if seed >= 2:
        given = asyncio.run(Product().used())
        assert given == 1 or seed < 4
    return "a trace"


@contextmanager
def alive() -> Iterator[None]:
    with plant(Product, "used", wrong):
        yield


@contextmanager
def dead() -> Iterator[None]:
    with plant(Product, "unused", wrong):
        yield


@contextmanager
def half_dead() -> Iterator[None]:
    with alive(), dead():
        yield


def test_the_first_seed_that_notices_a_bug_finds_it() -> None:
    assert first_seed_that_finds(alive, run_seed, 10) == Found(4, "AssertionError")


def test_a_bug_that_is_used_and_that_no_seed_notices_is_a_weakness_of_the_simulation() -> None:
    with pytest.raises(Unnoticed, match="alive went unnoticed in 4 seeds"):
        first_seed_that_finds(alive, run_seed, 4)


@pytest.mark.parametrize("bug", [dead, half_dead])
def test_what_was_replaced_and_nobody_calls_is_named(bug: Plant) -> None:
    with pytest.raises(DeadPlant, match=r"^Product\.unused was replaced but never called$"):
        first_seed_that_finds(bug, run_seed, 10)


def test_without_a_search_a_plant_has_to_be_used_before_it_ends() -> None:
    with pytest.raises(DeadPlant, match=r"Product\.used"), alive():
        pass
    with alive():
        assert asyncio.run(Product().used()) == 0


def test_a_check_that_does_not_object_is_told_that_there_was_nothing_to_object_to() -> None:
    with pytest.raises(DeadPlant, match=r"Product\.unused"), dead(), pytest.raises(AssertionError):
        run_seed(2)


def test_a_tuple_that_nobody_reads_is_named() -> None:
    module = sys.modules[__name__]
    with plant(module, "SIDES", SIDES[:1]):
        assert [*SIDES] == ["first"]
    with pytest.raises(DeadPlant, match=rf"{__name__}\.SIDES"), plant(module, "SIDES", ()):
        pass
