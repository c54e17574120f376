"""One event loop in a thread of its own, for callers that have none.

There is one such thread a process. It starts with the first call, is shared by all blocking
objects, and ends before Python shuts its thread pools down, so that nothing is left half-way into
a pool that takes no more work.

A forked child inherits objects but no threads. It gets a loop thread of its own, and an object
that was opened in the parent says so instead of waiting for ever for a thread that is not there.
"""

import asyncio
import atexit
import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, TypeVar

from stratalog.errors import Closed, Invalid, Unknown

T = TypeVar("T")

STOP_S_MAX = 5.0


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose copy in a forked child can be dropped without a trace."""

    def __init__(self) -> None:
        self._polling = selectors.DefaultSelector()
        self._dropped = False
        super().__init__(self._polling)

    def drop_copy(self) -> None:
        """Close this process's copies of the descriptors, and leave the parent's loop alone.

        ``close`` would take the wake-up socket out of the selector, which the parent still uses.
        """
        self._polling.close()
        for held in vars(self).values():
            if isinstance(held, socket.socket):
                held.close()
        self._dropped = True

    def is_closed(self) -> bool:
        return self._dropped or super().is_closed()


class LoopThread:
    """Runs coroutines for other threads of this process."""

    def __init__(self) -> None:
        self.inherited = False
        """Whether this is the parent's, seen from a forked child."""
        self._waiting: set[Future[Any]] = set()
        self._loop = _Loop()
        self._thread = threading.Thread(target=self._run, name="stratalog-sync", daemon=True)
        self._thread.start()

    def run(self, start: Callable[[], Awaitable[T]]) -> T:
        """Await what ``start`` gives, and wait for it.

        A caller that stops waiting (Ctrl-C) is a cancelled caller: what it called is cancelled as
        any coroutine is, and an append that is under way goes on.
        """

        self.check()
        future = self._start(start)
        self._remember(future)
        try:
            return future.result()
        except CancelledError:
            if _ended and threading.current_thread().daemon:
                # Python ends daemon threads where they stand. An error here would only be noise.
                threading.Event().wait()
            raise _cut_off() from None
        finally:
            future.cancel()

    def call(self, work: Callable[[], T]) -> T:
        """Run a plain function in the loop's thread, and wait for it."""
        future: Future[T] = Future()

        def called() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised in the thread that called
                future.set_exception(error)

        self.check()
        try:
            self._loop.call_soon_threadsafe(called)
        except RuntimeError:
            raise _ending() from None
        self._remember(future)
        return future.result()

    def relay(self, start: Callable[[], Awaitable[T]]) -> Future[T]:
        """Call ``start`` now, and give a future for what it promises.

        Cancelling the future is the same as not looking at it.
        """
        relayed: Future[T] = Future()

        def settle(source: asyncio.Future[T]) -> None:
            error = _cut_off() if source.cancelled() else source.exception()
            if not relayed.set_running_or_notify_cancel():
                return
            if error is not None:
                relayed.set_exception(error)
            else:
                relayed.set_result(source.result())

        self.call(lambda: asyncio.ensure_future(start()).add_done_callback(settle))
        self._remember(relayed)
        return relayed

    def begin(self, start: Callable[[], Awaitable[object]]) -> None:
        """Run something to its end without waiting. Used where nothing may block or raise."""
        if not self.inherited and self._thread.is_alive():
            with contextlib.suppress(Closed):
                self._start(start)

    def check(self) -> None:
        """Refuse a call that would wait for ever."""
        if self.inherited:
            raise Invalid(
                "this object was opened in the parent process",
                hint="Open it again after the fork, or send it to the process with pickle.",
            )
        if threading.current_thread() is self._thread:
            raise Invalid(
                "a blocking call in the thread of the event loop would wait for itself",
                hint="Use the async classes there, or make the call in another thread.",
            )

    def leave_to_parent(self) -> None:
        self.inherited = True
        self._loop.drop_copy()

    def stop(self) -> None:
        """Cancel what still runs and end the thread, within a bounded time."""
        try:
            self._loop.call_soon_threadsafe(self._loop.stop)
        except RuntimeError:
            return
        self._thread.join(STOP_S_MAX)

    def _start(self, start: Callable[[], Awaitable[T]]) -> Future[T]:
        async def call() -> T:
            return await start()

        coroutine = call()
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise _ending() from None

    def _run(self) -> None:
        loop = self._loop
        try:
            loop.run_forever()
            loop.run_until_complete(_wind_down())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
            self._cut_off_waiting()

    def _remember(self, future: Future[Any]) -> None:
        """Make sure that nobody waits for this future when the loop is gone."""
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        if self._loop.is_closed():
            self._cut_off_waiting()

    def _cut_off_waiting(self) -> None:
        for future in tuple(self._waiting):
            with contextlib.suppress(InvalidStateError):
                future.set_exception(_cut_off())


async def _wind_down() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_current: LoopThread | None = None
_starting = threading.Lock()
_stops_at_exit = False
_ended = False


def loop_thread() -> LoopThread:
    """The loop thread of this process, started if need be."""
    global _current, _stops_at_exit
    with _starting:
        if _ended:
            raise _ending()
        if _current is None:
            if not _stops_at_exit:
                _before_exit(_stop)
                _stops_at_exit = True
            _current = LoopThread()
        return _current


def _before_exit(callback: Callable[[], None]) -> None:
    """Register for the moment before the pools are shut down, which is before ``atexit``."""
    register = getattr(threading, "_register_atexit", atexit.register)
    try:
        register(callback)
    except RuntimeError:
        raise _ending() from None


def _stop() -> None:
    global _ended
    with _starting:
        _ended = True
        thread = _current
    if thread is not None:
        thread.stop()


def _forget_in_child() -> None:
    global _current, _starting
    _starting = threading.Lock()
    if _current is not None:
        _current.leave_to_parent()
        _current = None


def _cut_off() -> Unknown:
    return Unknown("the loop thread ended before the call did")


def _ending() -> Closed:
    return Closed("Python is ending", hint="Close what you opened before the program ends.")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
