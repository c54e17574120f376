"""The digest of stored bytes: XXH3-128. It runs at memory speed and keeps no secret.

It shows damage, not tampering: whoever can change an object can compute its digest.
"""

from xxhash import xxh3_128_hexdigest

DIGEST_DIGITS = 32


def digest_of(data: bytes) -> str:
    """The digest of these bytes, 32 hex digits."""
    return xxh3_128_hexdigest(data)
