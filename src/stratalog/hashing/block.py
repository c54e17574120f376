"""What the kernel and its maker share: the shape of a block, and the error of giving up."""

HEADER_BYTES = 16
"""The size of the offset and the time that are hashed before each body."""

BLOCK_BYTES = 136
"""The rate of SHA3-256: how much is absorbed between two permutations."""


class Unusable(Exception):
    """This machine cannot make or run the program. The reason is the message."""
