"""The page of a run: it stands alone, says everything, and trusts no name."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from stratalog.pipeline import html_of
from stratalog.pipeline.outputs.sizes import HerdSize, LogSize
from stratalog.pipeline.run.run_report import (
    LARGEST_MAX,
    TROUBLES_MAX,
    Failure,
    Proof,
    RunReport,
    StageReport,
    Totals,
    largest_logs,
    size_bins,
    texts_of,
)
from stratalog.pipeline.run.svg_charts import Bar, bars, columns, next_power_of_two, nice_top
from stratalog.store.counted import Usage

NAMES = [f"customer-{number:03d}" for number in range(30)]
BEFORE = [
    LogSize(log=name, log_id=name, records=10 * n, num_bytes=100 * n**3)
    for n, name in enumerate(NAMES)
]
AFTER = [
    LogSize(log=name, log_id=name, records=n, num_bytes=n, output_rows=5, output_bytes=500)
    for n, name in enumerate(NAMES)
]
SUM = "ab12" * 16


COMPACTED = StageReport(
    stage="compact",
    seconds=1.5,
    logs=3,
    records=29_793,
    bytes_before=1 << 18,
    bytes_after=1 << 12,
    figures={"policies": 3, "retention_moved": 1},
)


def made(**changes: object) -> RunReport:
    report = RunReport(
        root="s3://bucket/shop",
        server="worker-1",
        started_us=1_790_000_000_000_000,
        ended_us=1_790_000_074_000_000,
        stages=(
            StageReport(
                stage="materialize",
                seconds=31.25,
                logs=30,
                records=4350,
                bytes_before=1 << 20,
                bytes_after=1 << 16,
                figures={"rows": 150, "merge_s": 28.5},
                requests=Usage(60, 140, 0, 1 << 16, 1 << 20),
            ),
            StageReport(stage="scrub", seconds=2.0, logs=30, figures={"audit": "20260101Z-x"}),
        ),
        before=Totals.of(HerdSize(tuple(BEFORE))),
        after=Totals.of(HerdSize(tuple(AFTER))),
        sizes=size_bins(BEFORE, AFTER),
        largest=largest_logs(BEFORE, AFTER),
        proof=Proof(
            audit="20260101Z-x",
            logs=30,
            compared=30,
            records=435,
            expected_sum=SUM,
            actual_sum=SUM,
            collected_sum="cd" * 32,
            damages=(),
        ),
        findings=(),
    )
    return replace(report, **changes)  # type: ignore[arg-type]


class Page(HTMLParser):
    """The elements of a page, which are closed in the order in which they were opened."""

    VOID = ("meta", "rect", "line", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    def count(self, tag: str) -> int:
        return sum(each == tag for each, _ in self.seen)


def test_the_page_stands_alone_and_is_well_formed() -> None:
    text = html_of(made())
    page = Page(text)
    assert page.open == []
    assert page.count("script") == page.count("link") == page.count("img") == 0
    assert re.findall(r"(?:https?:)?//[\w.]+", text.replace("s3://bucket", "")) == [
        "http://www.w3.org"
    ] * page.count("svg"), "names a namespace, and loads nothing"
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text


def test_charts_have_a_title_a_description_and_axes() -> None:
    page = Page(html_of(made()))
    charts = page.count("svg")
    assert charts == 5
    assert page.count("title") == charts + 1
    assert page.count("desc") == charts
    text = " ".join(page.text)
    for words in ("seconds", "logs", "records", "bytes", "requests", "before", "after"):
        assert words in text
    assert "materialize: 31.2 s" in text


def test_everything_is_told() -> None:
    text = " ".join(Page(html_of(made())).text)
    for words in (
        "s3://bucket/shop",
        "worker-1",
        "2026-09-21 14:13:20 UTC",
        "1 min 14 s",
        "4,350",
        "merge 28.5 s",
        "customer-029",
        SUM,
        "They are equal.",
        "fit together",
        "Nothing is wrong",
    ):
        assert words in text, words
    assert text.count(SUM) == 2


def test_what_went_wrong_is_told_first_and_in_full() -> None:
    stage = StageReport(stage="collect", seconds=1, troubles=("the log a: no answer",))
    text = " ".join(Page(html_of(made(stages=(stage,)))).text)
    assert "but for 1 log" in text
    assert "the log a: no answer" in text
    damaged = made().proof
    assert damaged is not None
    proof = replace(damaged, actual_sum="00" * 32, damages=("b: log/x: fragment-sum",))
    text = " ".join(Page(html_of(made(proof=proof, findings=("c: unmarked: 3 records",)))).text)
    for words in ("alarm a person", "fragment-sum", "They differ", "c: unmarked", "1 finding"):
        assert words in text
    failed = made(failure=Failure("denied", "no key", "Get one."), before=None, after=None)
    text = " ".join(Page(html_of(failed)).text)
    assert "Ended early: no key" in text
    assert "Get one." in text
    assert "Logs by size" not in text


def test_a_run_of_nothing_is_a_page_too() -> None:
    empty = made(stages=(), before=None, after=None, sizes=(), largest=(), proof=None)
    assert Page(html_of(replace(empty, findings=None))).open == []
    nothing = HerdSize()
    page = html_of(
        made(before=Totals.of(nothing), after=Totals.of(nothing), sizes=size_bins([], []))
    )
    assert Page(page).open == []


def test_names_are_never_read_as_markup() -> None:
    nasty = "<script>alert('x')</script>&\""
    stage = StageReport(stage="verify", seconds=1, troubles=(nasty,), figures={nasty: nasty})
    report = made(root=nasty, server=nasty, stages=(stage,), findings=(nasty,))
    assert Page(html_of(report)).count("script") == 0


def test_the_numbers_of_a_report() -> None:
    assert sum(each.before for each in size_bins(BEFORE, AFTER)) == 30
    bins = size_bins(BEFORE, AFTER)
    assert [each.low for each in bins][:3] == [0, 1024, 4096]
    assert all(low.high == high.low for low, high in pairwise(bins))
    lines = largest_logs(BEFORE, AFTER)
    assert len(lines) == LARGEST_MAX
    assert (lines[0].log, lines[0].records_before, lines[0].output_rows) == ("customer-029", 290, 5)
    gone = largest_logs(BEFORE[-1:], [])
    assert (gone[0].records_before, gone[0].records_after) == (290, 0)
    many = texts_of(f"the log {number}" for number in range(TROUBLES_MAX + 3))
    assert (len(many), many[-1]) == (TROUBLES_MAX + 1, "and 3 more")
    assert texts_of(["asked with password=hunter2"]) == ("asked with password=***",)
    assert made().ok
    facts = made().to_dict()
    assert facts["seconds"] == 74.0
    assert "error" not in facts


@pytest.mark.parametrize(
    ("value", "top"),
    [(0, 1), (1, 1), (1.5, 2), (31.2, 40), (52, 60), (99, 100), (100, 100), (0.03, 0.04)],
)
def test_an_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert nice_top(value) == pytest.approx(top)


def test_an_axis_of_bytes_ends_at_a_power_of_two() -> None:
    assert [next_power_of_two(each) for each in (0, 3, 1000, 1024, 1025)] == [
        4,
        4,
        1024,
        1024,
        2048,
    ]


def test_bars_start_at_zero_and_keep_their_proportions() -> None:
    drawn = bars("t", "x", [Bar("a", 5), Bar("b", 10), Bar("c", 0)], str)
    widths = [float(each) for each in re.findall(r'<rect[^>]* width="([\d.]+)"', drawn)]
    assert widths[1] == pytest.approx(2 * widths[0], abs=0.2)
    assert widths[2] == 0
    upright = columns("t", ("x", "y"), ["p", "q"], [("s", [1, 2]), ("t", [0, 4])], str)
    heights = [float(each) for each in re.findall(r'<rect[^>]* height="([\d.]+)"', upright)]
    assert heights[0] * 4 == pytest.approx(heights[3], abs=0.4)


def test_what_policies_have_dropped_is_told_where_there_are_any() -> None:
    report = made()
    text = html_of(replace(report, stages=(*report.stages, COMPACTED)))
    assert "records compacted" in text
    assert "29,793" in text
    assert "policies 3, retention moved 1" in text
    without = replace(COMPACTED, records=0, figures={"policies": 0})
    assert "records compacted" not in html_of(replace(report, stages=(without,)))
