"""Tests that are coroutines: each runs in an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps

TIMEOUT_S = 60.0


def in_own_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run it to its end, or fail after a minute."""

    @wraps(test)
    def run(*args: object, **named: object) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **named), TIMEOUT_S))

    return run
