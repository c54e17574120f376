"""A store with the latencies of a distant one, for measuring what a protocol costs in round trips.

Latencies of object stores are close to lognormal: a typical value and a long tail. Two quantiles
fix such a distribution. ``S3_PUT`` and ``S3_GET`` are the delays with which this project's
benchmarks stand in for S3.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from random import Random

from stratalog.store import Blob, Head, Listed, Store

# How many standard deviations of a normal distribution lie between its median and its p99.
P99_SIGMAS = 2.3263478740408408


@dataclass(frozen=True, slots=True)
class Latency:
    """A lognormal distribution, given by its median and its 99th percentile."""

    p50_s: float
    p99_s: float

    def draw_s(self, random: Random) -> float:
        sigma = math.log(self.p99_s / self.p50_s) / P99_SIGMAS
        return random.lognormvariate(math.log(self.p50_s), sigma)


S3_PUT = Latency(0.028, 0.075)
S3_GET = Latency(0.015, 0.045)


class DelayedStore:
    """Answers as the store it wraps, later. Puts and deletions take ``put``, the rest ``get``."""

    def __init__(
        self, store: Store, *, seed: int, put: Latency = S3_PUT, get: Latency = S3_GET
    ) -> None:
        self._store = store
        self._random = Random(seed)
        self._put = put
        self._get = get

    @property
    def url(self) -> str:
        return self._store.url

    async def get(self, path: str) -> Blob:
        await self._wait(self._get)
        return await self._store.get(path)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        await self._wait(self._get)
        return await self._store.get_range(path, start, length)

    async def head(self, path: str) -> Head:
        await self._wait(self._get)
        return await self._store.head(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        await self._wait(self._put)
        return await self._store.put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        await self._wait(self._put)
        return await self._store.put_if_match(path, data, etag)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        await self._wait(self._get)
        async for row in self._store.list(prefix, after):
            yield row

    async def delete_many(self, paths: Sequence[str]) -> None:
        await self._wait(self._put)
        await self._store.delete_many(paths)

    async def _wait(self, latency: Latency) -> None:
        await asyncio.sleep(latency.draw_s(self._random))
