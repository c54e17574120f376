"""SHA3-256 of many records at once, in the vectors of the processor. Optional, by the extra
``fast``.

    program.py   Keccak and the adding up, written for LLVM
    kernel.py    the same as machine code, and what Python hands to it
    making.py    when a process makes it
"""

HEADER_BYTES = 16
"""What is hashed before each body: its offset and its time."""

BLOCK_BYTES = 136
"""The rate of SHA3-256: what is absorbed between two permutations."""


class Unusable(Exception):
    """This machine cannot make or run the program. The reason is the message."""
