"""SHA3-256 of many records at once, in the vectors of the processor.

Needs the extra ``fast``; without it ``hashlib`` serves.

    program.py   Keccak and the sums, written for LLVM
    kernel.py    the compiled program, and its call from Python
    build_kernel.py    when a process compiles it
    digest.py    the digest of stored bytes, which is another hash for another purpose
"""

from stratalog.hashing.build_kernel import MAKER
from stratalog.hashing.digest import digest_of
