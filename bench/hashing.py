"""Two ways to hash records: one after the other by ``hashlib``, and in vectors.

A straight loop does the first, so that is what the targets are held against. The library does the
second where the extra ``fast`` is installed, as it is for every bench; what a loop gains from it is
shown beside the target, as the harder measure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from unittest.mock import patch

from stratalog.hashing.block import Unusable
from stratalog.hashing.kernel import Kernel
from stratalog.hashing.making import MAKER, Maker
from stratalog.objectlog.stored import record_sums

Way = Literal["one by one", "in vectors"]


def make_kernel() -> Kernel:
    """Before anything is measured: a process makes it once."""
    kernel = MAKER.wait()
    assert kernel is not None, "the extra `fast` is installed for benches"
    return kernel


@contextmanager
def hashing(way: Way) -> Iterator[None]:
    """What the library does meanwhile."""
    if way == "in vectors":
        yield
        return
    without = Maker(_never)
    without.wait()
    with patch.object(record_sums, "MAKER", without):
        yield


def _never() -> Kernel:
    raise Unusable("one record after the other")
