"""A group whose record finds no room waits for it, without haste, and stands in no one's way."""

import asyncio
from collections.abc import Iterable, Mapping

import pytest
from kio.schema.errors import ErrorCode

from stratalog.broker.groups.group_log import FULL_PAUSE_S, GroupLog
from stratalog.broker.groups.stored import GroupKey
from stratalog.errors import Full, NotHappened, StratalogError
from stratalog.testing import Simulation, simulate

FULL = Full("the disk is full")
BEHIND_IT = NotHappened("the write before it failed")


class FullMap:
    """A map on a disk that is full, whose queue has room."""

    def __init__(self, error: StratalogError = FULL) -> None:
        self.error = error
        self.tries = 0
        self.is_full = True

    def put(self, changes: Mapping[bytes, bytes | None]) -> asyncio.Future[None]:
        self.tries += 1
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_full:
            answer.set_exception(self.error)
        else:
            answer.set_result(None)
        return answer

    async def room(self) -> None:
        """There is always some."""

    def items(self, prefix: bytes = b"") -> Iterable[tuple[bytes, bytes]]:
        return ()


def store(log: GroupLog) -> "asyncio.Task[ErrorCode]":
    return asyncio.ensure_future(log.store({GroupKey("counting"): None}, None))


@pytest.mark.parametrize("error", [FULL, BEHIND_IT], ids=["no room", "behind one without"])
def test_a_full_disk_is_tried_a_few_times_a_second_until_it_has_room(
    error: StratalogError,
) -> None:
    async def scenario(_: Simulation) -> int:
        durable = FullMap(error)
        storing = store(GroupLog(durable, lambda: None))
        await asyncio.sleep(10)
        tries, durable.is_full = durable.tries, False
        assert await storing is ErrorCode.none
        return tries

    assert simulate(scenario, 1) <= 10 / FULL_PAUSE_S + 1


def test_a_full_disk_does_not_keep_a_broker_from_stopping() -> None:
    async def scenario(simulation: Simulation) -> float:
        log = GroupLog(FullMap(), lambda: None)
        storing = store(log)
        await asyncio.sleep(10)
        began = simulation.loop.time()
        log.stop()
        assert await storing is ErrorCode.coordinator_not_available
        return simulation.loop.time() - began

    assert simulate(scenario, 1) < FULL_PAUSE_S
