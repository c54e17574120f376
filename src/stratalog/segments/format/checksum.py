"""CRC-32 by the fastest implementation that is installed.

``isal`` (``pip install 'stratalog[disk]'``) uses processor instructions and takes a tenth of the
time of ``zlib.crc32``, which is most of the cost of a small entry. Both compute the same number.
"""

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
