"""SHA3-256 of many records at once, in the vectors of the processor. Optional, by the extra
``fast``.

    program.py   Keccak and the adding up, written for LLVM
    kernel.py    the same as machine code, and what Python hands to it
    making.py    when a process makes it
"""

from stratalog.hashing.making import MAKER

__all__ = ["MAKER"]
