"""The program that hashes in vectors: the same sums as hashlib's, and no trust in what it is given.

Every number of lanes is tried on every machine: a processor without such vectors takes them apart.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha3_256
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.hashing import program
from stratalog.hashing.block import BLOCK_BYTES, HEADER_BYTES, Unusable
from stratalog.hashing.kernel import Kernel, Totals, lanes_of

LANES = (2, 4, 8)
KERNELS = {lanes: Kernel(lanes) for lanes in LANES}
any_lanes = pytest.mark.parametrize("lanes", LANES)


def expected(headers: bytes, bodies: list[bytes]) -> list[int]:
    """By the definition."""
    totals = [0] * 8
    for number, body in enumerate(bodies):
        header = headers[HEADER_BYTES * number : HEADER_BYTES * (number + 1)]
        digest = sha3_256(header + body).digest()
        for column in range(8):
            totals[column] += int.from_bytes(digest[4 * column : 4 * column + 4], "little")
    return totals


def found(made: Kernel, headers: bytes, bodies: list[bytes]) -> list[int]:
    bounds = np.cumsum([0, *map(len, bodies)], dtype=np.int32)
    rows = np.frombuffer(headers, dtype=np.uint64)
    totals: list[int] = made.totals(rows, pa.py_buffer(b"".join(bodies)), bounds).tolist()
    return totals


@any_lanes
def test_every_length_around_four_blocks(lanes: int) -> None:
    random = Random(1)
    for length in range(4 * BLOCK_BYTES + 2):
        bodies = [random.randbytes(length) for _ in range(lanes + 1)]
        headers = random.randbytes(HEADER_BYTES * len(bodies))
        assert found(KERNELS[lanes], headers, bodies) == expected(headers, bodies), length


@any_lanes
@pytest.mark.parametrize("count", [*range(1, 18), 63, 64, 65])
def test_every_number_of_records_of_mixed_lengths(lanes: int, count: int) -> None:
    random = Random(count)
    bodies = [random.randbytes(random.randrange(700)) for _ in range(count)]
    headers = random.randbytes(HEADER_BYTES * count)
    assert found(KERNELS[lanes], headers, bodies) == expected(headers, bodies)


@settings(deadline=None)
@given(
    st.sampled_from(LANES),
    st.lists(st.binary(max_size=600), max_size=40),
    st.integers(0, 2 ** (8 * HEADER_BYTES) - 1),
)
def test_any_records(lanes: int, bodies: list[bytes], header: int) -> None:
    headers = header.to_bytes(HEADER_BYTES, "big") * len(bodies)
    assert found(KERNELS[lanes], headers, bodies) == expected(headers, bodies)


@any_lanes
def test_one_large_record_among_small_ones(lanes: int) -> None:
    bodies = [b"x" * (12_000_000 if number == 7 else number) for number in range(20)]
    headers = bytes(HEADER_BYTES * len(bodies))
    assert found(KERNELS[lanes], headers, bodies) == expected(headers, bodies)


def test_nothing_and_nothing_but_headers() -> None:
    made = KERNELS[4]
    assert made.totals(np.empty(0, np.uint64), None, np.zeros(1, np.int32)).tolist() == [0] * 8
    headers = bytes(range(HEADER_BYTES)) * 9
    rows = np.frombuffer(headers, dtype=np.uint64)
    without = made.totals(rows, None, np.zeros(10, dtype=np.int32)).tolist()
    assert without == expected(headers, [b""] * 9)


def test_arrays_that_are_not_contiguous() -> None:
    """Columns of a wider table and every other bound."""
    wide = np.arange(40, dtype=np.uint64).reshape(10, 4)
    bounds = np.arange(0, 44, 2, dtype=np.int32)[::2]
    data = bytes(range(40))
    bodies = [data[4 * number : 4 * number + 4] for number in range(10)]
    totals = KERNELS[4].totals(wide[:, :2], pa.py_buffer(data), bounds)
    assert totals.tolist() == expected(wide[:, :2].tobytes(), bodies)


@pytest.mark.parametrize(
    ("bounds", "headers"),
    [([-1, 3], 1), ([0, 5, 4], 2), ([0, 9], 1), ([0, 4], 2), ([0, 4, 8], 1)],
)
def test_bounds_and_headers_that_do_not_fit_are_refused(bounds: list[int], headers: int) -> None:
    rows = np.zeros((headers, 2), dtype=np.uint64)
    with pytest.raises(ValueError, match=r"bounds|header"):
        KERNELS[4].totals(rows, pa.py_buffer(bytes(8)), np.array(bounds, dtype=np.int32))


def test_bounds_that_wrap_around_are_refused() -> None:
    """Each is beyond the one before, if the difference is computed in 32 bits."""
    bounds = np.array([0, 2**31 - 1, -(2**31), -1, 0] * 4 + [0], dtype=np.int32)
    rows = np.zeros((len(bounds) - 1, 2), dtype=np.uint64)
    with pytest.raises(ValueError, match="bounds"):
        KERNELS[4].totals(rows, pa.py_buffer(b"abc"), bounds)


def test_bounds_without_data_are_refused() -> None:
    with pytest.raises(ValueError, match="bounds"):
        KERNELS[4].totals(np.zeros((1, 2), np.uint64), None, np.array([0, 1], np.int32))


def test_threads_hash_at_the_same_time_and_do_not_disturb_each_other() -> None:
    random = Random(5)
    shares = [[random.randbytes(random.randrange(400)) for _ in range(300)] for _ in range(8)]
    headers = random.randbytes(HEADER_BYTES * 300)
    begin = threading.Barrier(len(shares))

    def work(bodies: list[bytes]) -> list[int]:
        begin.wait()
        return found(KERNELS[8], headers, bodies)

    with ThreadPoolExecutor(len(shares)) as pool:
        sums = list(pool.map(work, shares))
    assert sums == [expected(headers, bodies) for bodies in shares]


def test_the_widest_vectors_that_there_are() -> None:
    assert lanes_of({"avx512f": True, "avx2": True}) == 8
    assert lanes_of({"avx512f": False, "avx2": True}) == 4
    assert lanes_of({"neon": True}) == 2


def test_a_program_that_computes_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with a fault of the compiler or the processor."""
    monkeypatch.setattr(program, "PADDING_FIRST", 0x01)
    with pytest.raises(Unusable, match="does not compute"):
        Kernel()


def test_a_processor_that_stores_the_high_byte_first_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.byteorder", "big")
    with pytest.raises(Unusable, match="low byte"):
        Kernel()


def test_a_compiler_that_fails_is_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "sum_records", lambda lanes: "this is not LLVM's language")
    with pytest.raises(Unusable, match="LLVM"):
        Kernel()


WITHOUT_EXECUTABLE_MEMORY = """
import ctypes, sys
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
if ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) != 0:
    sys.exit(77)
import logging
logging.basicConfig()
from stratalog.hashing.build_kernel import MAKER
assert MAKER.wait() is None
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems ask in other ways")
def test_a_process_that_may_not_have_executable_memory_does_without() -> None:
    """As under systemd's ``MemoryDenyWriteExecute``."""
    command = [sys.executable, "-c", WITHOUT_EXECUTABLE_MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this kernel cannot refuse it")
    assert done.returncode == 0, done.stderr
    assert "no executable memory" in done.stderr


def test_totals_hold_more_than_a_word_of_32_bits() -> None:
    bodies = [b"same"] * 3000
    headers = bytes(HEADER_BYTES * len(bodies))
    totals: Totals = np.array(found(KERNELS[8], headers, bodies), dtype=np.uint64)
    assert totals.tolist() == [3000 * column for column in expected(headers[:16], [b"same"])]
