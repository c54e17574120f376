"""The program of ``program.py`` as machine code of this processor, and its call from Python.

LLVM (``llvmlite``, which ``pip install 'stratalog[fast]'`` brings) compiles it in about an eighth
of a second. It runs without the GIL, so threads hash on all cores at once.
"""

import ctypes
import mmap
import os
import struct
import sys
from hashlib import sha3_256

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stratalog.hashing import program
from stratalog.hashing.block import BLOCK_BYTES, HEADER_BYTES, Unusable

Headers = npt.NDArray[np.uint64]
Bounds = npt.NDArray[np.int32]
Totals = npt.NDArray[np.uint64]

_SPEED = 2

_Function = ctypes.CFUNCTYPE(None, ctypes.c_uint64, *[ctypes.c_void_p] * 5)


class Kernel:
    """Adds up the hashes of many records. Safe for any number of threads at once."""

    def __init__(self, lanes: int | None = None) -> None:
        if sys.byteorder != "little":
            raise Unusable("the program is for processors that store the low byte first")
        require_executable_memory()
        features = llvm.get_host_cpu_features()
        self.lanes = lanes_of(features) if lanes is None else lanes
        # The engine owns the code: the function is valid as long as the engine lives.
        self._engine = _compile(program.sum_records(self.lanes), features)
        self._function = _Function(self._engine.get_function_address(program.NAME))
        self._check()

    def totals(self, headers: Headers, bodies: pa.Buffer | None, bounds: Bounds) -> Totals:
        """The sum of each column over all digests.

        A record is 16 bytes of ``headers`` and the bytes of ``bodies`` between two ``bounds``.
        """
        count = len(bounds) - 1
        totals = np.zeros(8, dtype=np.uint64)
        if not count:
            return totals
        # Native code trusts its arguments, so they are checked here. The bounds are copied, because
        # code that shares their memory could change them after the check.
        bounds = np.array(bounds, dtype=np.int32)
        size, address = (bodies.size, bodies.address) if bodies is not None else (0, 0)
        if bounds[0] < 0 or bounds[-1] > size or (bounds[1:] < bounds[:-1]).any():
            raise ValueError("the bounds of the bodies do not ascend within their data")
        if headers.nbytes != HEADER_BYTES * count:
            raise ValueError("there is not one header for each body")
        headers = np.ascontiguousarray(headers)
        order = _order(np.diff(bounds))
        self._function(
            count,
            order.ctypes.data,
            headers.ctypes.data,
            address,
            bounds.ctypes.data,
            totals.ctypes.data,
        )
        return totals

    def _check(self) -> None:
        """Compare with ``hashlib``, around every edge of a block, before anything relies on it."""
        edges = (0, 1, 7, 8, 119, 120, 121, 255, 256, 257, 391, 392, 393, 1024)
        bodies = [bytes([length % 251]) * length for length in edges]
        header = struct.pack(">QQ", 1, 2)
        digests = b"".join(sha3_256(header + body).digest() for body in bodies)
        expected = np.frombuffer(digests, dtype="<u4").reshape(-1, 8).sum(axis=0, dtype=np.uint64)
        found = self.totals(
            np.frombuffer(header * len(bodies), dtype=np.uint64),
            pa.py_buffer(b"".join(bodies)),
            np.cumsum([0, *edges], dtype=np.int32),
        )
        if not np.array_equal(found, expected):
            raise Unusable("the program does not compute SHA3-256 here")


def require_executable_memory() -> None:
    """Raise ``Unusable`` in a process without it (``MemoryDenyWriteExecute``, SELinux). LLVM does
    not notice, and the first call would end the process."""
    if sys.platform == "win32":
        return
    page = mmap.mmap(-1, mmap.PAGESIZE)
    mapped = ctypes.c_char.from_buffer(page)
    try:
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        reading = mmap.PROT_READ | mmap.PROT_EXEC
        if protect(ctypes.addressof(mapped), mmap.PAGESIZE, reading) != 0:
            raise Unusable(f"no executable memory: {os.strerror(ctypes.get_errno())}")
    finally:
        del mapped
        page.close()


def lanes_of(features: dict[str, bool]) -> int:
    """How many 64-bit words a vector of this processor has."""
    if features.get("avx512f"):
        return 8
    if features.get("avx2"):
        return 4
    return 2


def _order(lengths: Bounds) -> npt.NDArray[np.uint64]:
    """An order in which records with the same number of blocks are neighbours."""
    ends = int(lengths.min()), int(lengths.max())
    fewest, most = ((length + HEADER_BYTES) // BLOCK_BYTES for length in ends)
    if fewest == most:
        return np.arange(len(lengths), dtype=np.uint64)
    blocks = (lengths.astype(np.int64) + HEADER_BYTES) // BLOCK_BYTES
    if most <= np.iinfo(np.uint16).max:
        blocks = blocks.astype(np.uint16)  # NumPy sorts these by their digits
    return np.argsort(blocks, kind="stable").astype(np.uint64)


def _compile(source: str, features: llvm.FeatureMap) -> llvm.ExecutionEngine:
    try:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=features.flatten(), opt=_SPEED
        )
        module = llvm.parse_assembly(source)
        module.verify()
        # The loops have the right length, and the code is vectorized already.
        tuning = llvm.create_pipeline_tuning_options(speed_level=_SPEED)
        tuning.loop_unrolling = False
        passes = llvm.create_pass_builder(machine, tuning)
        passes.getModulePassManager().run(module, passes)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
    except RuntimeError as error:
        raise Unusable(f"LLVM cannot compile it: {error}") from error
    return engine
