"""When a process makes the kernel, and that nothing depends on whether it can."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from stratalog.hashing import build_kernel
from stratalog.hashing.block import BLOCK_BYTES, Unusable
from stratalog.hashing.build_kernel import (
    BLOCKS_MIN,
    BREAK_EVEN_BLOCKS,
    RECORDS_MIN,
    Maker,
    make_kernel,
)
from stratalog.hashing.kernel import Kernel

MADE = Kernel()

WITHOUT_LLVM = """
import sys
sys.modules["llvmlite"] = None
import numpy as np, pyarrow as pa
from stratalog.hashing.build_kernel import MAKER
from stratalog.objectlog.stored.record_sums import sum_of_records

assert MAKER.wait() is None
numbers = np.arange(1000, dtype=np.uint64)
print(sum_of_records(numbers, numbers, pa.array([b"body"] * 1000, pa.binary())).hexdigest())
"""
WITH_LLVM = WITHOUT_LLVM.replace('sys.modules["llvmlite"] = None', "").replace(
    "is None", "is not None"
)


class Slow:
    """Makes a kernel when it is let."""

    def __init__(self) -> None:
        self.begun, self.let = threading.Event(), threading.Event()
        self.times = 0

    def __call__(self) -> Kernel:
        self.times += 1
        self.begun.set()
        assert self.let.wait(30)
        return MADE


def being_made() -> tuple[Slow, Maker]:
    slow = Slow()
    maker = Maker(slow)
    maker.begin()
    assert slow.begun.wait(30)
    return slow, maker


def failing(error: Exception) -> Callable[[], Kernel]:
    def make() -> Kernel:
        raise error

    return make


def hash_without(maker: Maker, blocks: int) -> None:
    assert maker.kernel_for(RECORDS_MIN, blocks * BLOCK_BYTES) is None


def test_it_is_made_once_there_was_as_much_to_hash_as_it_costs() -> None:
    slow = Slow()
    maker = Maker(slow)
    for _ in range(9):
        hash_without(maker, BREAK_EVEN_BLOCKS // 10)
    assert not slow.begun.is_set()
    hash_without(maker, BREAK_EVEN_BLOCKS // 10 + 1)
    assert slow.begun.wait(30)
    hash_without(maker, BREAK_EVEN_BLOCKS)  # nobody waits for it
    slow.let.set()
    assert maker.wait() is MADE
    assert maker.kernel_for(RECORDS_MIN, BLOCKS_MIN * BLOCK_BYTES) is MADE
    assert slow.times == 1


def test_those_who_know_have_it_made_at_once() -> None:
    slow = Slow()
    maker = Maker(slow)
    maker.begin()
    assert slow.begun.wait(30)
    maker.begin()
    slow.let.set()
    assert maker.wait() is MADE
    assert slow.times == 1


def test_few_records_and_little_to_hash_do_without_it() -> None:
    maker = Maker(lambda: MADE)
    maker.wait()
    assert maker.kernel_for(RECORDS_MIN - 1, 10**9) is None
    assert maker.kernel_for(RECORDS_MIN, 100) is None
    assert maker.kernel_for(0, 0) is None
    assert maker.kernel_for(10**6, 0) is MADE


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'llvmlite'"),
        Unusable("no vectors"),
        OSError("libLLVM.so: wrong version"),
        AttributeError("another llvmlite"),
    ],
)
def test_where_it_cannot_be_made_it_is_tried_once(error: Exception) -> None:
    maker = Maker(failing(error))
    assert maker.wait() is None
    hash_without(maker, 2 * BREAK_EVEN_BLOCKS)
    assert maker.wait() is None


def test_this_machine_can_make_it() -> None:
    assert make_kernel().lanes in (2, 4, 8)


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_a_fork_waits_for_what_is_being_made(when: str) -> None:
    slow = Slow()
    maker = Maker(slow)
    if when != "before":
        maker.begin()
        assert slow.begun.wait(30)
    if when == "after":
        slow.let.set()
        maker.wait()
    forking = threading.Thread(target=maker.before_fork)
    forking.start()
    if when == "while":
        forking.join(0.2)
        assert forking.is_alive()
        slow.let.set()
    forking.join(30)
    assert not forking.is_alive()
    slow.let.set()
    maker.after_fork(in_child=True)
    assert maker.wait() is MADE


def test_a_fork_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_kernel, "FORK_WAIT_S_MAX", 0.01)
    slow, maker = being_made()
    maker.before_fork()
    maker.after_fork(in_child=False)
    slow.let.set()
    assert maker.wait() is MADE, "the parent's goes on"


def test_a_child_of_such_a_fork_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_kernel, "FORK_WAIT_S_MAX", 0.01)
    slow, maker = being_made()
    maker.before_fork()
    maker.after_fork(in_child=True)
    assert maker.wait() is None
    slow.let.set()


def test_where_no_thread_can_be_started_it_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    maker = Maker(lambda: MADE)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        hash_without(maker, BREAK_EVEN_BLOCKS)
    assert maker.wait() is None


FORKS_WHILE_LLVM_IS_IMPORTED = """
import os, sys, threading
from stratalog.hashing.build_kernel import MAKER

MAKER.begin()
while "llvmlite" not in sys.modules:
    pass
child = os.fork()
if child == 0:
    import llvmlite.binding
    os._exit(0 if MAKER.wait() is not None else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_can_import_what_was_being_imported() -> None:
    command = [sys.executable, "-c", FORKS_WHILE_LLVM_IS_IMPORTED]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_forked_process_hashes() -> None:
    script = """
import os, sys
import numpy as np, pyarrow as pa
from stratalog.hashing.build_kernel import MAKER
from stratalog.objectlog.stored.record_sums import sum_of_records

numbers = np.arange(1000, dtype=np.uint64)
bodies = pa.array([b"body"] * 1000, pa.binary())
assert MAKER.wait() is not None
expected = sum_of_records(numbers, numbers, bodies)
child = os.fork()
if child == 0:
    os._exit(0 if sum_of_records(numbers, numbers, bodies) == expected else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_sums_are_the_same_where_llvm_is_not_installed() -> None:
    def sum_by(script: str) -> bytes:
        command = [sys.executable, "-c", script]
        return subprocess.run(command, capture_output=True, check=True).stdout

    assert sum_by(WITHOUT_LLVM) == sum_by(WITH_LLVM)


def test_hashing_does_not_load_llvm_before_it_is_worth_it() -> None:
    script = """
import sys
import stratalog
from stratalog.objectlog.stored import record_sums
assert "llvmlite" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
