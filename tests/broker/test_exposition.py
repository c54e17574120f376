"""Metrics are written as Prometheus reads them."""

from __future__ import annotations

import pytest

from stratalog.broker.context import Meters
from stratalog.broker.http.exposition import Family, Sample, render, single
from stratalog.broker.http.health import State, readiness
from stratalog.broker.http.metrics import process, traffic
from stratalog.broker.http.process import usage
from stratalog.errors import Full

FULL = Full("no space is left")


def test_a_metric_has_its_help_its_type_and_its_values() -> None:
    family = Family(
        "requests_total", "counter", "Requests.", (Sample(3, {"api": "Fetch"}), Sample(0.5, {}))
    )
    assert render([family]) == (
        b"# HELP requests_total Requests.\n"
        b"# TYPE requests_total counter\n"
        b'requests_total{api="Fetch"} 3\n'
        b"requests_total 0.5\n"
    )


def test_what_a_label_or_a_help_may_not_hold_is_escaped() -> None:
    family = Family("a", "gauge", "one\ntwo\\", (Sample(1, {"name": 'a"b\\c\nd'}),))
    assert render([family]).decode().splitlines() == [
        "# HELP a one\\ntwo\\\\",
        "# TYPE a gauge",
        'a{name="a\\"b\\\\c\\nd"} 1',
    ]


def test_large_counters_are_exact() -> None:
    assert render([single("a", "counter", "A.", 2**53 + 0)]).endswith(b"a 9007199254740992\n")


def test_a_family_without_values_is_left_out() -> None:
    assert render([Family("a", "gauge", "A.", ())]) == b""


def test_a_family_that_comes_twice_is_a_defect() -> None:
    with pytest.raises(AssertionError, match="a metric is exposed once"):
        render([single("a", "gauge", "A.", 1), single("a", "gauge", "A.", 2)])


def test_requests_are_counted_and_timed_by_their_api() -> None:
    meters = Meters()
    meters.request("Fetch").add(0.25, 100)
    meters.request("Fetch").add(0.25, 50, failed=True)
    lines = render(traffic(meters)).decode().splitlines()
    assert "stratalog_broker_connections 0" in lines
    assert 'stratalog_broker_request_seconds_count{api="Fetch"} 2' in lines
    assert 'stratalog_broker_request_seconds_sum{api="Fetch"} 0.5' in lines
    assert 'stratalog_broker_request_errors_total{api="Fetch"} 1' in lines
    assert 'stratalog_broker_request_bytes_total{api="Fetch"} 150' in lines


def test_every_metric_is_named_for_the_broker_and_every_counter_for_a_total() -> None:
    for family in [*traffic(Meters()), *process(usage())]:
        assert family.name.startswith("stratalog_broker_")
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert family.help.endswith(".")


def test_the_process_knows_what_it_uses() -> None:
    found = usage()
    assert found.peak_bytes > 1_000_000
    assert found.cpu_s > 0
    assert found.resident_bytes is None or found.resident_bytes > 1_000_000
    assert found.open_files is None or found.open_files > 0


@pytest.mark.parametrize(
    ("state", "is_down", "failure", "reason"),
    [
        (State.SERVING, False, None, None),
        (State.OPENING, False, None, "the data directory is being opened"),
        (State.STOPPING, False, None, "the broker is shutting down"),
        (State.STOPPING, True, FULL, "the broker is shutting down"),
        (State.SERVING, True, None, "the disk takes no more writes"),
        (State.SERVING, False, FULL, "the disk cannot be written: no space is left"),
    ],
)
def test_a_broker_is_ready_if_there_is_no_reason_against_it(
    state: State, is_down: bool, failure: Full | None, reason: str | None
) -> None:
    found = readiness(state, log_is_down=is_down, disk_failure=failure)
    assert found.is_ready is (reason is None)
    assert [each for each in found.reasons if not each.startswith(reason or "")] == []
    assert len(found.reasons) == (0 if reason is None else 1)
