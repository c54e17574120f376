"""Makers of kernels for tests that want to know how records are hashed."""

from __future__ import annotations

from stratalog.hashing.block import Unusable
from stratalog.hashing.build_kernel import Maker
from stratalog.hashing.kernel import Kernel


def without_vectors() -> Maker:
    """As where the extra ``fast`` is not installed."""

    def never() -> Kernel:
        raise Unusable("by hashlib alone")

    maker = Maker(never)
    assert maker.wait() is None
    return maker


def with_vectors() -> Maker:
    maker = Maker()
    assert maker.wait() is not None
    return maker
