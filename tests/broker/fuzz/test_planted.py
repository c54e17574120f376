"""Bugs put in on purpose: the fuzzer finds each of them within a few thousand frames."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from broker.fuzz.fuzzing import fuzz
from stratalog.broker.requests.records import produce
from stratalog.broker.wire import Malformed
from stratalog.broker.wire.connection import Connection, Slot
from stratalog.broker.wire.frames import FrameReader
from stratalog.broker.wire.primitives import Reader
from stratalog.errors import Corrupt
from stratalog.partitions import Batch

FRAMES = 4000
FOUND = (
    *(AssertionError, ConnectionError, Corrupt, TimeoutError, ValueError),
    *(RecursionError, struct.error),
)
Plant = Callable[[pytest.MonkeyPatch], None]


def memory_that_malformed_requests_keep(patch: pytest.MonkeyPatch) -> None:
    def handle(self: Any, frame: memoryview) -> None:
        try:
            self.shared.dispatch(self, frame)
        except Malformed as error:
            self.break_off(str(error))

    patch.setattr(Connection, "_handle", handle)


def memory_of_half_a_request_that_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FrameReader, "drop", lambda _: None)


def text_that_nobody_checks(patch: pytest.MonkeyPatch) -> None:
    def nullable_string(self: Reader) -> str | None:
        size = self.varint() - 1 if self.flexible else self.int16()
        return None if size == -1 else str(self.bytes_of(size), "utf-8")

    patch.setattr(Reader, "nullable_string", nullable_string)


def lengths_that_nobody_checks(patch: pytest.MonkeyPatch) -> None:
    def bytes_of(self: Reader, size: int) -> memoryview:
        at, self.at = self.at, self.at + size
        return self.data[at : at + size]

    patch.setattr(Reader, "bytes_of", bytes_of)


def batches_that_nobody_checks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(produce, "check_batch", lambda data, *_: Batch.over(data))


def failures_that_are_not_answered(patch: pytest.MonkeyPatch) -> None:
    answer = Slot.answer

    def forgetful(self: Slot, buffers: Any, meter: Any, *, failed: bool = False) -> None:
        if not failed:
            answer(self, buffers, meter, failed=failed)

    patch.setattr(Slot, "answer", forgetful)


def a_connection_that_survives_nonsense_by_stopping_the_others(patch: pytest.MonkeyPatch) -> None:
    def break_off(self: Connection, _: str) -> None:
        for each in list(self.shared.connections):
            each.abort()

    patch.setattr(Connection, "break_off", break_off)


def requests_that_share_the_buffer(patch: pytest.MonkeyPatch) -> None:
    def divide(self: Any, data: memoryview) -> None:
        at = 0
        while len(data) - at >= 4:
            size = self._size(data, at)
            start, at = at + 4, at + 4 + size
            if at > len(data):
                self._begin(size, data[start:])
                return
            self._memory.count(size)
            self.on_frame(data[start:at])
        if at < len(data):
            self._length = memoryview(bytearray(4))
            self._length[: len(data) - at] = data[at:]
            self._target = self._length[len(data) - at :]

    patch.setattr(FrameReader, "_divide", divide)


def requests_that_waited_and_are_handled_by_recursion(patch: pytest.MonkeyPatch) -> None:
    def go_on(self: Any) -> None:
        while self._backlog and not self._is_full and self._transport is not None:
            self._handle(self._backlog.popleft())
        self._regulate()

    patch.setattr(Connection, "_go_on", go_on)


PLANTS: tuple[Plant, ...] = (
    memory_that_malformed_requests_keep,
    memory_of_half_a_request_that_is_kept,
    text_that_nobody_checks,
    lengths_that_nobody_checks,
    batches_that_nobody_checks,
    failures_that_are_not_answered,
    a_connection_that_survives_nonsense_by_stopping_the_others,
    requests_that_share_the_buffer,
    requests_that_waited_and_are_handled_by_recursion,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(FOUND):
        fuzz(0, FRAMES)
