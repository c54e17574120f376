"""CRC-32, as fast as it is to be had.

``zlib.crc32`` is everywhere. ``isal`` (``pip install 'stratalog[disk]'``) uses the processor's own
multiplication for it and takes a tenth of the time, which is most of what a small entry costs. Both
give the same number, so nobody can tell from a file who wrote it.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
