"""The exported history is enough for a checker that knows nothing else about the run."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

from soak.simulated import soaked
from soak.test_soak import ROUGH
from stratalog.soak import History
from stratalog.soak.history import digest_of
from stratalog.testing import Append, HistoryViolation, Operation, Placed, Read, Seen, check_appends
from stratalog.testing import History as CheckedHistory

Line = dict[str, Any]


def history_of(seed: int) -> list[Line]:
    file = io.BytesIO()
    report = soaked(seed, faults=ROUGH, duration_s=20.0, history=History(file))
    assert report.proven
    return [json.loads(line) for line in file.getvalue().splitlines()]


def ids(line: Line) -> list[bytes]:
    """One body for each record, made from what the record says about itself."""
    return [
        b"%d/%d" % (writer, number)
        for writer, first, count in line["records"]
        for number in range(first, first + count)
    ]


def checked(lines: list[Line]) -> None:
    """Hand the lines to the checker of the testing kit, as somebody from outside would."""
    rows = [
        (line["offset"] + index, 1, body)
        for line in lines
        if line["process"] == "follow"
        for index, body in enumerate(ids(line))
    ]
    at = {body: offset for offset, _, body in rows}
    history = CheckedHistory()
    for line in lines:
        call, returned = line["call_ns"], line["return_ns"] or float("inf")
        if line["kind"] == "append":
            operation = Operation(line["process"], Append(tuple(ids(line))), call, returned)
            if line["outcome"] == "ok":
                operation.result = Placed(line["offset"], 1)
        elif line["kind"] == "read":
            operation = Operation(line["process"], Read(line["offset"]), call, returned)
            seen = tuple((line["offset"] + i, 1, body) for i, body in enumerate(ids(line)))
            operation.result = Seen(seen)
        else:
            operation = Operation(line["process"], Read(1), call, returned)
            operation.result = Seen(tail=line["offset"])
        operation.outcome = line["outcome"]
        history.operations.append(operation)
    assert len(at) == len(rows)
    check_appends(history, rows)


def test_the_history_of_a_soak_is_linearizable_by_an_independent_checker() -> None:
    lines = history_of(1)
    checked(lines)
    kinds = {(line["kind"], line["outcome"]) for line in lines}
    assert {("append", "ok"), ("append", "unknown"), ("read", "ok"), ("tail", "ok")} <= kinds
    processes = {line["process"].split("-")[0] for line in lines if line["kind"] == "read"}
    assert {"follow", "read", "pin"} <= processes


def test_a_history_that_was_tampered_with_is_not() -> None:
    lines = history_of(1)
    acknowledged = [line for line in lines if line["kind"] == "append" and line["outcome"] == "ok"]
    first, second = acknowledged[0], acknowledged[-1]
    first["offset"], second["offset"] = second["offset"], first["offset"]
    with pytest.raises(HistoryViolation):
        checked(lines)


def test_every_event_has_an_instant_of_its_own_and_a_call_comes_before_its_return() -> None:
    lines = history_of(2)
    instants = [line["call_ns"] for line in lines]
    instants += [line["return_ns"] for line in lines if line["return_ns"] is not None]
    assert len(set(instants)) == len(instants)
    assert all(line["call_ns"] < line["return_ns"] for line in lines if line["return_ns"])


def test_what_is_under_way_at_the_end_is_unknown() -> None:
    async def scenario() -> list[Line]:
        file = io.BytesIO()
        history = History(file)
        history.call("1", "append", [b"one"], [(1, 0, 1)])
        failed = history.call("2", "append", [b"two"], [(2, 0, 1)])
        history.failed(failed)
        history.drop(history.call("follow", "read"))
        history.close()
        return [json.loads(line) for line in file.getvalue().splitlines()]

    failed, unknown = asyncio.run(scenario())
    assert (failed["outcome"], failed["offset"]) == ("failed", None)
    assert (unknown["outcome"], unknown["return_ns"]) == ("unknown", None)
    assert list(unknown) == [
        "process",
        "kind",
        "call_ns",
        "return_ns",
        "outcome",
        "offset",
        "count",
        "digest",
        "records",
    ]
    assert unknown["digest"] == digest_of([b"one"]) == "ac3d566038b2689be2668a210a5da1cd"


def test_the_digest_tells_bodies_apart_also_by_where_they_end() -> None:
    assert digest_of([b"ab", b"c"]) != digest_of([b"a", b"bc"])
    assert digest_of([b"ab", b"c"]) == digest_of([memoryview(b"ab"), memoryview(b"c")])
