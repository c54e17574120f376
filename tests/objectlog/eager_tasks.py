"""Tasks that run at once until they first wait, as ``asyncio.eager_task_factory`` makes them."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Coroutine, Generator
from typing import Any


def make_tasks_eager(loop: asyncio.AbstractEventLoop) -> None:
    """From now on every task of this loop begins inside of the call that creates it."""
    if sys.version_info >= (3, 12):
        loop.set_task_factory(asyncio.eager_task_factory)
    else:
        loop.set_task_factory(_begin)  # type: ignore[arg-type]


def _begin(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Future[Any]:
    """The same on Python 3.11: take the first step here, and let a task take the others."""
    ended = False
    waits_for: Any = None

    @types.coroutine
    def others() -> Generator[Any, Any, Any]:
        nonlocal waits_for
        while not ended:
            if waits_for is not None:
                waits_for._asyncio_future_blocking = True
            thrown: BaseException | None = None
            answer = None
            try:
                answer = yield waits_for
            except BaseException as error:
                thrown = error
            try:
                waits_for = coro.send(answer) if thrown is None else coro.throw(thrown)
            except StopIteration as end:
                return end.value

    async def go_on() -> Any:
        return await others()

    task = asyncio.Task(go_on(), loop=loop, **options)
    creator = asyncio.current_task(loop)
    if creator is not None:
        asyncio.tasks._leave_task(loop, creator)
    asyncio.tasks._enter_task(loop, task)
    done = loop.create_future()
    try:
        waits_for = coro.send(None)
    except StopIteration as end:
        done.set_result(end.value)
    except Exception as error:
        done.set_exception(error)
    else:
        return task
    finally:
        asyncio.tasks._leave_task(loop, task)
        if creator is not None:
            asyncio.tasks._enter_task(loop, creator)
    ended = True
    return done
