"""What is asked for next is read before, within a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from own_loop import in_own_loop
from stratalog.errors import Corrupt
from stratalog.partitions.protocol import Fetched
from stratalog.partitions.read_ahead import Place, ReadAhead, Reading

SIZE = 10


class Log:
    """Stretches of ten offsets and ten bytes each; says which of them were read."""

    def __init__(self, name: str = "log") -> None:
        self.name = name
        self.read: list[int] = []

    def place(self, offset: int) -> Place:
        return self.name, offset

    def stretch(self, offset: int) -> Fetched:
        return Fetched((bytes(SIZE),), SIZE, offset + SIZE)

    def reader(self, offset: int) -> Callable[[], Reading]:
        async def read() -> Fetched:
            self.read.append(offset)
            return self.stretch(offset)

        return lambda: read()

    def give(self, ahead: ReadAhead, offset: int, bytes_max: int = SIZE) -> None:
        """Somebody got the stretch at an offset."""
        found = self.stretch(offset)
        ahead.given(self.place(offset), found, bytes_max, self.reader(found.next_offset))


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@in_own_loop
async def test_the_stretch_after_two_that_follow_one_another_is_read_ahead() -> None:
    ahead, log = ReadAhead(), Log()
    log.give(ahead, 0)
    await settled()
    assert not log.read  # perhaps nobody goes on
    log.give(ahead, 10)
    await settled()
    assert log.read == [20]
    found = ahead.take(log.place(20), SIZE)
    assert found is not None
    assert found.next_offset == 30
    assert ahead.take(log.place(20), SIZE) is None  # its memory belongs to one


@in_own_loop
async def test_reads_here_and_there_read_nothing_ahead() -> None:
    ahead, log = ReadAhead(), Log()
    for offset in (0, 50, 20, 90, 70):
        log.give(ahead, offset)
    await settled()
    assert not log.read


@in_own_loop
async def test_consumers_at_different_places_do_not_disturb_one_another() -> None:
    ahead, log, other = ReadAhead(), Log(), Log("other")
    for step in range(0, 30, 10):
        log.give(ahead, step)
        log.give(ahead, 500 + step)
        other.give(ahead, step)
    await settled()
    assert log.read == [20, 520, 30, 530]
    assert other.read == [20, 30]


@in_own_loop
async def test_what_is_being_read_is_waited_for_and_not_read_again() -> None:
    ahead, log = ReadAhead(), Log()
    log.give(ahead, 0)
    log.give(ahead, 10)
    assert ahead.take(log.place(20), SIZE) is None
    await ahead.wait(log.place(20))
    assert ahead.take(log.place(20), SIZE) is not None
    assert log.read == [20]
    await ahead.wait(log.place(700))  # of which nothing is known


@in_own_loop
async def test_a_smaller_limit_than_was_read_for_is_kept() -> None:
    ahead, log = ReadAhead(), Log()
    log.give(ahead, 0)
    log.give(ahead, 10)
    await settled()
    assert ahead.take(log.place(20), SIZE - 1) is None


@in_own_loop
async def test_the_stretch_that_waited_longest_is_given_up_beyond_the_bound() -> None:
    ahead = ReadAhead(bytes_max=2 * SIZE)
    logs = [Log(name) for name in "abc"]
    for log in logs:
        log.give(ahead, 0)
        log.give(ahead, 10)
        await settled()
    first, *others = logs
    assert ahead.take(first.place(20), SIZE) is None
    assert all(ahead.take(log.place(20), SIZE) is not None for log in others)


@in_own_loop
async def test_nothing_larger_than_the_bound_is_read_ahead() -> None:
    ahead, log = ReadAhead(bytes_max=2 * SIZE), Log()
    log.give(ahead, 0, bytes_max=3 * SIZE)
    log.give(ahead, 10, bytes_max=3 * SIZE)
    await settled()
    assert not log.read


@in_own_loop
async def test_an_error_is_left_to_whoever_asks() -> None:
    ahead, log = ReadAhead(), Log()

    async def fail() -> Fetched:
        raise Corrupt("a flipped bit")

    log.give(ahead, 0)
    ahead.given(log.place(10), log.stretch(10), SIZE, lambda: fail())
    await ahead.wait(log.place(20))
    assert ahead.take(log.place(20), SIZE) is None


@in_own_loop
async def test_a_limit_below_nothing_reads_nothing_ahead() -> None:
    ahead, log = ReadAhead(), Log()
    log.give(ahead, 0, bytes_max=-(2**31))
    log.give(ahead, 10, bytes_max=-(2**31))
    await settled()
    assert not log.read


@in_own_loop
async def test_a_closed_log_that_comes_back_begins_anew() -> None:
    ahead, log = ReadAhead(), Log()
    log.give(ahead, 0)
    ahead.drop(log.name)
    log.give(ahead, 10)
    await settled()
    assert not log.read


@pytest.mark.parametrize("settles", [False, True])
@in_own_loop
async def test_nothing_is_left_of_a_log_that_was_closed(settles: bool) -> None:
    ahead, log = ReadAhead(), Log()
    log.give(ahead, 0)
    log.give(ahead, 10)
    if settles:
        await settled()
    ahead.drop(log.name)
    await ahead.wait(log.place(20))
    assert ahead.take(log.place(20), SIZE) is None
