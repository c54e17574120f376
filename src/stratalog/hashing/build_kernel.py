"""When a process compiles the kernel: once the compilation would have paid off.

Compiling takes about as long as hashing half a million blocks without the kernel. A process cannot
know how much it will hash. This is the ski rental problem: rent until the rent has reached the
price, then buy. So hashing never takes more than twice the best possible time. A caller that knows
that there is much to hash calls ``begin``.

A thread of its own compiles the kernel; until then ``hashlib`` serves. It also serves where LLVM is
not installed or cannot be used: the sums are the same.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from stratalog.hashing.block import BLOCK_BYTES, HEADER_BYTES

if TYPE_CHECKING:
    from stratalog.hashing.kernel import Kernel

BREAK_EVEN_BLOCKS = 500_000
BLOCKS_MIN = 64
"""With fewer, the call takes longer than hashing."""

RECORDS_MIN = 8
"""With fewer, most lanes would be idle."""

FORK_WAIT_S_MAX = 5.0

_log = logging.getLogger("stratalog.hashing")


def make_kernel() -> Kernel:
    """Compile the kernel: a fifth of a second, half of it to load LLVM."""
    from stratalog.hashing.kernel import Kernel

    return Kernel()


class Maker:
    """Compiles one kernel, if it can."""

    def __init__(self, make: Callable[[], Kernel] = make_kernel) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._forker: int | None = None
        self._kernel: Kernel | None = None
        self._begun = False
        self._ended = threading.Event()
        self._blocks = 0

    def kernel_for(self, records: int, size: int) -> Kernel | None:
        """The kernel if it is ready and worth the call, else None: then use ``hashlib``."""
        blocks = records + (size + HEADER_BYTES * records) // BLOCK_BYTES
        if records < RECORDS_MIN or blocks < BLOCKS_MIN:
            return None
        if self._kernel is None and not self._begun:
            self._blocks += blocks  # threads may lose a few, which does not matter
            if self._blocks >= BREAK_EVEN_BLOCKS:
                self.begin()
        return self._kernel

    def begin(self) -> None:
        """Compile it now, in a thread. Returns at once."""
        with self._lock:
            if self._begun:
                return
            self._begun = True
        try:
            # Not a daemon: an ending process must not unload LLVM under it.
            threading.Thread(target=self._try, name="stratalog-hashing").start()
        except RuntimeError as error:  # no more threads, or the process is ending
            self._ended.set()
            _log.warning("hashing without vectors: %s", error)

    def wait(self) -> Kernel | None:
        """Compile it now, and wait for the kernel, or None if it cannot be compiled."""
        self.begin()
        self._ended.wait()
        return self._kernel

    def _try(self) -> None:
        with self._making:
            try:
                self._kernel = self._make()
                _log.debug("hashing in vectors of %d", self._kernel.lanes)
            except ModuleNotFoundError as error:
                _log.debug("hashing without vectors: %s", error)
            except Exception as error:
                _log.warning("hashing without vectors: %s", error)
            finally:
                self._ended.set()

    # A fork waits for a compilation under way: a child that inherited the locks of imports and of
    # LLVM without the thread that holds them would hang in the same import.

    def before_fork(self) -> None:
        if self._making.acquire(timeout=FORK_WAIT_S_MAX):
            self._forker = threading.get_ident()

    def after_fork(self, *, in_child: bool) -> None:
        forked = self._forker == threading.get_ident()
        self._forker = None if forked else self._forker
        if in_child:
            self._lock, self._making = threading.Lock(), threading.Lock()
            if self._begun:
                self._ended = threading.Event()
                self._ended.set()
        elif forked:
            self._making.release()


MAKER = Maker()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=MAKER.before_fork,
        after_in_parent=partial(MAKER.after_fork, in_child=False),
        after_in_child=partial(MAKER.after_fork, in_child=True),
    )
