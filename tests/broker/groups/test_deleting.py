"""A group is deleted with all of its offsets, also with those that are on their way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import uuid4

from kio.schema.errors import ErrorCode

from own_loop import in_own_loop
from stratalog.broker import BrokerOptions
from stratalog.broker.groups import Commit, Groups, Identity
from stratalog.errors import Full
from stratalog.runtime import DEFAULT_RUNTIME

NO_MEMBER = Identity("", None, -1)
TOPIC = uuid4().hex


class SlowMap:
    """A map whose writes land when they are let, and which may have no room."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.has_room = True
        self._waiting: list[tuple[Mapping[bytes, bytes | None], asyncio.Future[None]]] = []

    def items(self, prefix: bytes = b"") -> Iterable[tuple[bytes, bytes]]:
        return [each for each in self.values.items() if each[0].startswith(prefix)]

    async def room(self) -> None:
        """There is always some soon."""

    def put(self, changes: Mapping[bytes, bytes | None]) -> asyncio.Future[None]:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.has_room:
            self._waiting.append((changes, answer))
        else:
            answer.set_exception(Full("no room"))
        return answer

    async def land(self) -> None:
        """What is on its way is durable, and whoever waits for it has gone on."""
        for changes, answer in self._waiting:
            for key, value in changes.items():
                if value is None:
                    self.values.pop(key, None)
                else:
                    self.values[key] = value
            answer.set_result(None)
        self._waiting.clear()
        await turns()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@in_own_loop
async def test_a_commit_without_room_hides_no_other_from_the_deletion() -> None:
    stored = SlowMap()
    options = BrokerOptions(data=Path("unused"))
    groups = await Groups.open(stored, options, DEFAULT_RUNTIME, lambda _: True)
    first = asyncio.ensure_future(groups.commit("g", NO_MEMBER, [Commit("t", TOPIC, 0, 5)]))
    await asyncio.sleep(0)
    stored.has_room = False
    refused = await groups.commit("g", NO_MEMBER, [Commit("t", TOPIC, 1, 6)])
    assert refused is ErrorCode.coordinator_not_available
    stored.has_room = True
    deleting = asyncio.ensure_future(groups.delete("g"))
    await turns()
    while not deleting.done():
        await stored.land()
    assert (await first, await deleting) == (ErrorCode.none, ErrorCode.none)
    assert not groups.fetch("g")
    assert not stored.values
    await groups.close()
