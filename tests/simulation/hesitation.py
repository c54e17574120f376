"""A process that stalls at the worst moment, just before it decides something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from objectlog.wrapped_stores import PassingStore
from stratalog.store.protocol import Blob
from stratalog.testing import Node

Part = Callable[[str], str]


def part_of(path: str) -> str:
    """Which part of a log an object belongs to."""
    return path.partition("/")[0]


class HesitantStore(PassingStore):
    """A process's way to the store, on which it may stall for longer than any interval.

    Each has its own weak moment, and the others go on meanwhile.
    """

    def __init__(
        self, node: Node, moment: str, span_s: float, random: Random, part: Part = part_of
    ) -> None:
        super().__init__(node.store)
        self._node = node
        self._weak_moment = moment
        self._span_s = span_s
        self._random = random
        self._part = part

    async def get(self, path: str) -> Blob:
        self._hesitate("get " + self._part(path))
        return await super().get(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self._hesitate("put " + self._part(path))
        return await super().put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        self._hesitate("put " + self._part(path))
        return await super().put_if_match(path, data, etag)

    async def delete_many(self, paths: Sequence[str]) -> None:
        self._hesitate("delete")
        await super().delete_many(paths)

    def _hesitate(self, moment: str) -> None:
        if moment == self._weak_moment and self._random.random() < 0.6:
            self._node.pause(self._span_s * 10 ** self._random.uniform(-1.0, 0.3))
