"""SHA3-256 of many records at once, in the vectors of the processor.

Needs the extra ``fast``; without it ``hashlib`` serves.

    program.py   Keccak and the sums, written for LLVM
    kernel.py    the compiled program, and its call from Python
    making.py    when a process compiles it
"""

from stratalog.hashing.making import MAKER
