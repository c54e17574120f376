"""What the kernel and the process that makes it agree on: the shape of a block, and giving up."""

from __future__ import annotations

HEADER_BYTES = 16
"""What is hashed before each body: its offset and its time."""

BLOCK_BYTES = 136
"""The rate of SHA3-256: what is absorbed between two permutations."""


class Unusable(Exception):
    """This machine cannot make or run the program. The reason is the message."""
