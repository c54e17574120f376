"""One dispatch for all callers of one moment, so that their records share a fragment."""

import asyncio
import os
from collections.abc import Callable
from threading import get_ident
from weakref import WeakSet


class Wakeup:
    """Has ``dispatch`` called once the callbacks of this moment have run."""

    __slots__ = ("__weakref__", "_dispatch", "at_s", "thread")

    def __init__(self, dispatch: Callable[[], None]) -> None:
        self._dispatch = dispatch
        self.thread: int | None = None
        """The thread of these callbacks, until they have run."""
        self.at_s = 0.0
        """When the first of them came, which is taken for the time of all."""
        _wakeups.add(self)

    def wake(self) -> None:
        if self.thread is None:
            loop = asyncio.get_running_loop()
            self.at_s = loop.time()
            loop.call_soon(self._run)
            self.thread = get_ident()

    def _run(self) -> None:
        self.thread = None
        self._dispatch()


_wakeups: WeakSet[Wakeup] = WeakSet()


def _forget_in_child() -> None:
    """The loop of the parent does not run in a forked child: nothing will be dispatched there."""
    for wakeup in _wakeups:
        wakeup.thread = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
