"""The benches run, keep what they measure as data, and draw it. How fast it is, is not asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.charts import draw
from bench.pairs import PAIRS_QUICK, measure_pairs
from bench.results import Figure, Ratio, Run, Series, Spread


@pytest.mark.s3
@pytest.mark.slow
def test_a_quick_run_leaves_data_and_charts(tmp_path: Path) -> None:
    arguments = ["object-log", "--quick", "--output", str(tmp_path)]
    for question in ("lone", "scale", "idle"):
        arguments += ["--only", question]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    run = Run.load(tmp_path / "object-log.json")
    assert run.quick
    ratios = [each for each in run.measurements if isinstance(each, Ratio)]
    assert {each.place for each in ratios} == {"directory", "SeaweedFS"}
    assert all(len(each.ours) == len(each.baseline) == PAIRS_QUICK for each in ratios)
    for chart in ("latency-ratios", "scale"):
        assert (tmp_path / f"object-log-{chart}.svg").read_text().startswith("<?xml")


@pytest.mark.s3
@pytest.mark.slow
def test_a_quick_run_of_the_collection_shows_growth_with_what_goes_and_not_with_the_log(
    tmp_path: Path,
) -> None:
    arguments = ["collection", "--quick", "--output", str(tmp_path)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    run = Run.load(tmp_path / "collection.json")
    curves = {
        (each.question, each.name): each for each in run.measurements if isinstance(each, Series)
    }
    for name in ("compute: read", "compute: written", "publish: read", "publish: written"):
        for question in ("prefix", "log-size"):
            assert max(curves[question, name].y) <= min(curves[question, name].y) + 1
    few, more, many = curves["prefix", "delete: deleted"].y
    assert few < more < many
    assert len(set(curves["log-size", "delete: deleted"].y)) == 1
    figures = [each for each in run.measurements if isinstance(each, Figure)]
    assert all(each.passes is not False for each in figures if each.unit in ("nodes", "bytes"))
    places = {each.place for each in run.measurements if each.question == "beside"}
    assert places == {"directory", "SeaweedFS"}
    for chart in ("prefix", "log-size", "throughput-ratios"):
        assert (tmp_path / f"collection-{chart}.svg").read_text().startswith("<?xml")


@pytest.mark.s3
@pytest.mark.slow
def test_a_quick_run_of_the_sets(tmp_path: Path) -> None:
    arguments = ["compaction", "--quick", "--only", "sets", "--output", str(tmp_path)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    run = Run.load(tmp_path / "compaction.json")
    names = {each.name.partition(",")[0] for each in run.measurements if isinstance(each, Ratio)}
    assert names == {"union", "intersection", "from sorted members", "membership of as many"}


def test_a_quick_run_of_the_forks_shows_growth_with_the_depth_and_not_with_the_log(
    tmp_path: Path,
) -> None:
    arguments = ["forks", "--quick", "--output", str(tmp_path)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    run = Run.load(tmp_path / "forks.json")
    curves = {each.name: each.y for each in run.measurements if isinstance(each, Series)}
    figures = [each for each in run.measurements if isinstance(each, Figure)]
    depths = [each.value for each in figures if each.unit == "levels"]
    assert depths == sorted(depths)
    assert len(set(depths)) > 1
    for what in ("read", "written"):
        at_tail, in_middle = curves[f"at the tail: {what}"], curves[f"in the middle: {what}"]
        assert len(at_tail) == len(in_middle) == len(depths)
        assert len(set(at_tail)) == 1
        assert max(in_middle) - min(in_middle) <= max(depths) - min(depths)
    assert all(each.passes is not False for each in figures)
    ratios = [each for each in run.measurements if isinstance(each, Ratio)]
    for question in ("reading", "pinned"):
        places = {each.place for each in ratios if each.question == question}
        assert places == {"directory", "SeaweedFS"}
    assert all(len(each.ours) == len(each.baseline) == PAIRS_QUICK for each in ratios)
    for chart in ("forking", "throughput-ratios"):
        assert (tmp_path / f"forks-{chart}.svg").read_text().startswith("<?xml")


@pytest.mark.s3
@pytest.mark.slow
def test_a_quick_run_of_the_disk_answers_all_its_questions(tmp_path: Path) -> None:
    arguments = ["segments", "--quick", "--output", str(tmp_path)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    run = Run.load(tmp_path / "segments.json")
    questions = {each.question for each in run.measurements}
    assert questions == {
        "wal",
        "partitions",
        "reading",
        "compacting",
        "restarting",
        "choosing",
    }
    for chart in ("throughput-ratios", "latency-ratios"):
        assert (tmp_path / f"segments-{chart}.svg").read_text().startswith("<?xml")


@pytest.mark.slow
def test_a_quick_run_of_the_broker_alone_has_its_figures(tmp_path: Path) -> None:
    arguments = ["broker", "--quick", "--output", str(tmp_path)]
    for question in ("lone", "requests", "large", "connections", "topics"):
        arguments += ["--only", question]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    run = Run.load(tmp_path / "broker.json")
    questions = {each.question for each in run.measurements}
    assert questions == {"lone", "requests", "batches of 1 MB", "connections", "topics"}
    loops = [each for each in run.measurements if isinstance(each, Ratio)]
    assert {each.against.partition(" that")[0] for each in loops} <= {"a C loop", "a Python loop"}
    assert (tmp_path / "broker-throughput-ratios.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("bench", "known"),
    [
        ("object-log", "bulk"),
        ("collection", "beside"),
        ("compaction", "sets"),
        ("forks", "pinned"),
        ("segments", "wal"),
        ("broker", "lone"),
    ],
)
def test_an_unknown_question_is_refused_with_the_known_ones(bench: str, known: str) -> None:
    done = CliRunner().invoke(app, [bench, "--only", "colour"])
    assert done.exit_code == 2
    assert known in done.output


def test_the_pairs_take_turns_and_change_their_order() -> None:
    calls: list[str] = []

    async def baseline() -> float:
        calls.append("theirs")
        return 2.0

    async def ours() -> float:
        calls.append("ours")
        return 1.0

    found = asyncio.run(measure_pairs(baseline, ours, 3))
    assert found == ([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    assert calls[2:] == ["theirs", "ours", "ours", "theirs", "theirs", "ours"]


def test_the_ratio_is_the_median_of_the_pairs_ratios_not_the_ratio_of_the_medians() -> None:
    measured = _ratio(baseline=[1.0, 10.0, 100.0], ours=[3.0, 10.0, 50.0])
    assert measured.ratios.median == 1.0
    assert measured.ratios.low == 0.5
    assert measured.passes is True


def test_a_bound_counts_in_its_own_direction() -> None:
    assert _ratio(baseline=[1.0], ours=[0.5]).passes is False
    assert _figure(value=11.0, target=10.0).passes is False
    assert _figure(value=9.0, target=10.0).passes is True
    assert _figure(value=9.0, target=None).passes is None


def test_a_stored_run_can_be_drawn_again(tmp_path: Path) -> None:
    run = Run.begin("trial", {"size": 1}, quick=True)
    run.measurements += [
        _ratio(baseline=[1.0, 2.0], ours=[1.0, 3.0]),
        _series("one", "n"),
        _series("many", "n"),
        _series("many", "m"),
    ]
    stored = Run.load(run.save(tmp_path))
    assert stored == run
    first = {path.name: path.read_bytes() for path in draw(stored, tmp_path / "a")}
    again = {path.name: path.read_bytes() for path in draw(stored, tmp_path / "b")}
    assert set(first) == {
        "trial-throughput-ratios.svg",
        "trial-throughput.svg",
        "trial-one.svg",
        "trial-many.svg",
    }
    assert first == again


def test_one_value_has_no_spread() -> None:
    assert Spread.of([4.0]) == Spread(4.0, 4.0, 4.0, 4.0, 4.0)


def _ratio(*, baseline: list[float], ours: list[float]) -> Ratio:
    return Ratio(
        question="q",
        name="n",
        place="p",
        against="a",
        unit="MB/s",
        baseline=baseline,
        ours=ours,
        bound="at least",
        target=0.8,
    )


def _series(question: str, name: str) -> Series:
    return Series(
        question=question,
        name=name,
        place="p",
        x_unit="x",
        y_unit="y",
        x=[1.0, 2.0],
        y=[1.0, 2.0],
    )


def _figure(*, value: float, target: float | None) -> Figure:
    return Figure(question="q", name="n", place="p", unit="bytes", value=value, target=target)
