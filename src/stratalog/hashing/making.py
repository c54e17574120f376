"""When a process makes the kernel: as soon as it has paid for it.

To make it takes about as long as hashing half a million blocks without it. A process cannot know
how much it will hash, so it does as one does who does not know how often he will ski: he rents
until he has spent what the skis cost, and then buys them. It never takes more than twice what was
best. ``begin`` is for those who know that there is much to hash.

It is made in a thread of its own, and until it is there everybody goes on with ``hashlib``. Where
LLVM is not installed or cannot be used it stays that way: the sums are the same.
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
"""With fewer it takes longer to hand them over than to hash them."""

RECORDS_MIN = 8
"""With fewer most lanes would be idle."""

FORK_WAIT_S_MAX = 5.0

_log = logging.getLogger("stratalog.hashing")


def make_kernel() -> Kernel:
    """Takes a fifth of a second, half of it to load LLVM."""
    from stratalog.hashing.kernel import Kernel

    return Kernel()


class Maker:
    """Makes one kernel, if it can."""

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
        """What hashes so many records of so many bytes, or None: then ``hashlib`` does."""
        blocks = records + (size + HEADER_BYTES * records) // BLOCK_BYTES
        if records < RECORDS_MIN or blocks < BLOCKS_MIN:
            return None
        if self._kernel is None and not self._begun:
            self._blocks += blocks  # threads may lose a few: nothing depends on them
            if self._blocks >= BREAK_EVEN_BLOCKS:
                self.begin()
        return self._kernel

    def begin(self) -> None:
        """Make it now. Returns at once."""
        with self._lock:
            if self._begun:
                return
            self._begun = True
        try:
            # Not a daemon: a process that ends must not take LLVM away under it.
            threading.Thread(target=self._try, name="stratalog-hashing").start()
        except RuntimeError as error:  # no more threads, or the process is about to end
            self._ended.set()
            _log.warning("hashing without vectors: %s", error)

    def wait(self) -> Kernel | None:
        """Make it now, if it can be made, and wait until it is there."""
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

    # A fork waits until what is being made is made: a child that inherited the locks of imports and
    # of LLVM without the thread that holds them could never import what that thread was importing.

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
