"""Two ways to hash records: one after the other by ``hashlib``, and in vectors.

The straight loops of the targets use ``hashlib``. The library hashes in vectors where the extra
``fast`` is installed, as it is for every bench. A straight loop with vectors is shown as well, as
the harder measure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from unittest.mock import patch

from stratalog.hashing.block import Unusable
from stratalog.hashing.build_kernel import MAKER, Maker
from stratalog.hashing.kernel import Kernel
from stratalog.objectlog.stored import record_sums

Way = Literal["one by one", "in vectors"]


def make_kernel() -> Kernel:
    """Compile the kernel before anything is measured: a process does it once."""
    kernel = MAKER.wait()
    assert kernel is not None, "the extra `fast` is installed for benches"
    return kernel


@contextmanager
def hashing(way: Way) -> Iterator[None]:
    """Choose how the library hashes meanwhile."""
    if way == "in vectors":
        yield
        return
    without = Maker(_never)
    without.wait()
    with patch.object(record_sums, "MAKER", without):
        yield


def _never() -> Kernel:
    raise Unusable("one record after the other")
