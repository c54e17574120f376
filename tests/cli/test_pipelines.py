"""`pipeline`: the jobs over a herd, from the shell."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import signals
import stratalog as sl
from cli.calls import TIMEOUT_S, call, call_json, error_json, run
from pipeline.test_report import made
from stratalog.cli.commands.herd.pipeline_run import Rounds
from stratalog.cli.exits import exit_code
from stratalog.cli.reply import Reply
from stratalog.pipeline import RunEvent
from stratalog.pipeline.run.run_report import Failure, RunReport

COMMANDS = ("roll-up", "materialize", "collect", "scrub", "verify", "run")
WITH_SPARK = COMMANDS[1:]
HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src"
KEY = "substring_index(cast(body as string), ' ', 1)"

sessions = importlib.import_module("stratalog.pipeline.session")


def ended(report: RunReport) -> RunEvent:
    return RunEvent(kind="round", round=report, wait_s=60.0)


class TestRounds:
    """What is told of rounds that follow each other."""

    def test_damage_is_remembered_until_the_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        rounds = Rounds(lambda _: None, None, Reply(as_json=True))
        rounds(ended(made()))
        assert not rounds.is_damaged
        rounds(ended(made(findings=("a file is missing",))))
        rounds(ended(made()))
        assert rounds.is_damaged

    def test_only_a_round_of_which_there_is_something_to_say_leaves_a_page(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        rounds = Rounds(lambda _: None, None, Reply(as_json=True))
        rounds(ended(made(before=None, after=None)))
        assert list(tmp_path.iterdir()) == []
        rounds(ended(made()))
        assert len(list(tmp_path.iterdir())) == 1

    def test_a_failure_is_told_with_its_own_code(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        error = sl.errors.Unavailable("no answer")
        failed = made(failure=Failure.of(error), error=error, before=None, after=None)
        Rounds(lambda _: None, None, Reply(as_json=True))(ended(failed))
        told = json.loads(capsys.readouterr().err)
        assert (told["kind"], told["exit_code"]) == ("unavailable", exit_code(error))
        assert "60 s" in told["hint"]

    def test_a_page_that_cannot_be_written_does_not_end_the_rounds(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        rounds = Rounds(
            lambda _: None, tmp_path / "no" / "such" / "folder.html", Reply(as_json=True)
        )
        rounds(ended(made()))
        assert "could not be written" in caplog.text


def new_herd(tmp_path: Path) -> str:
    root = str(tmp_path / "herd")

    async def write() -> None:
        async with sl.Herd.open(root, server="api") as herd:
            for name in ("a", "b"):
                await (await herd.create(name)).append_many([b"k %d" % n for n in range(20)])

    run(write())
    return root


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches(command: str) -> None:
    text = call("pipeline", command, "--help").stdout
    assert f"stratalog pipeline {command} " in text.split("Example")[1]
    for option in ("--json", "--verbose"):
        assert option in text
    for option in ("--master", "--remote", "--conf"):
        assert (option in text) == (command in WITH_SPARK)


def test_a_roll_up_needs_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "session", None)
    root = new_herd(tmp_path)
    found = call_json("pipeline", "roll-up", root, "--server", "night", "--records", "5")
    assert [(each["tail"], each["reason"]) for each in found["dirty"]] == [(21, "big")] * 2
    shown = call("pipeline", "roll-up", root, "--age", "1h").stdout
    assert "2 dirty logs, 0 selected; 0 clean, 0 gone; 2 marks read" in shown


def test_nothing_of_spark_is_loaded_before_it_is_needed() -> None:
    code = "import sys, stratalog.cli.app as _; print(*{'pyspark', 'pyarrow'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("command", WITH_SPARK)
def test_a_place_without_a_herd_is_told_before_spark_starts(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "session", None)
    extra = ["--key", "body"] if command in ("materialize", "run") else []
    told = error_json("pipeline", command, str(tmp_path / "herdd"), *extra, code=3)
    assert told["message"].startswith("there is no herd at ")
    assert not (tmp_path / "herdd").exists()
    assert error_json("pipeline", command, "memory://x", *extra, code=2)["kind"] == "invalid"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["materialize"], "--key"),
        (["run"], "--key"),
        (["run", "--stages", "scrub,sweep"], "no stage is called 'sweep'"),
        (["run", "--stages", ","], "no stage is called"),
        (["run", "--key", "body", "--once", "--every", "1s"], "exclude each other"),
        (["run", "--key", "body", "--every", "soon"], "no duration"),
        (["scrub", "--conf", "spark.ui.enabled"], "KEY=VALUE"),
        (["scrub", "--keep", "0"], "keep"),
        (["collect", "--interval", "-1"], "interval"),
        (["verify", "--job", "a/b"], "job"),
        (["verify", "--cursor", "a b"], "cursor"),
    ],
)
def test_a_wrong_call_is_told_before_spark_starts(
    args: list[str], message: str, tmp_path: Path
) -> None:
    told = error_json("pipeline", args[0], new_herd(tmp_path), *args[1:], code=2)
    assert message in told["message"]
    assert told["hint"]


def test_a_log_that_nobody_has_is_told(tmp_path: Path) -> None:
    told = error_json("pipeline", "scrub", new_herd(tmp_path), "--log", "nobody", code=3)
    assert "no log 'nobody'" in told["message"]


def test_a_report_has_a_place_to_go(tmp_path: Path) -> None:
    file = str(tmp_path / "nowhere" / "report.html")
    told = error_json(
        "pipeline", "run", new_herd(tmp_path), "--stages", "verify", "--report", file, code=3
    )
    assert "there is no directory" in told["message"]


def test_without_java_there_is_one_error_and_what_to_do(tmp_path: Path) -> None:
    code = (
        "from stratalog.cli import main\n"
        "import stratalog.pipeline.spark.jvm as jvm\n"
        "found = jvm.find_java\n"
        "jvm.find_java = lambda *_: found({'PATH': ''}, usual_homes=())\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "pipeline", "scrub", new_herd(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert "Java" in error
    assert hint.startswith("next: ")


PROGRAM = """
import json, os, signal, sys, threading, time
from cli.calls import CliRunner
from stratalog.cli.app import app
from stratalog.pipeline.session import session

def end_the_rounds():
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

with session(master="local[2]"):
    for arguments in json.load(open(sys.argv[1])):
        if "--every" in arguments:
            threading.Thread(target=end_the_rounds).start()
        done = CliRunner().invoke(app, arguments, prog_name="stratalog")
        print("CALLED " + json.dumps([done.exit_code, done.stdout, done.stderr]), flush=True)
"""


def call_all(tmp_path: Path, *calls: list[str]) -> Iterator[tuple[int, str, str]]:
    """Several commands in one process of their own, where Spark starts once.

    A session that exists is used, and not stopped. Rounds are told to end when they begin.
    """
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "calls.json").write_text(json.dumps([["pipeline", *each] for each in calls]))
    with signals.default_signals():
        done = subprocess.run(
            [sys.executable, tmp_path / "program.py", tmp_path / "calls.json"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (HERE.parent, SOURCES)))},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * TIMEOUT_S,
        )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        if line.startswith("CALLED "):
            code, out, err = json.loads(line.removeprefix("CALLED "))
            yield code, out, err


@pytest.mark.slow
def test_the_jobs_tell_what_they_did(tmp_path: Path) -> None:
    root, broken = new_herd(tmp_path), new_herd(tmp_path / "broken")
    next(Path(broken).glob("logs/*/log/**/*.parquet")).unlink()
    report = tmp_path / "report.html"
    told = call_all(
        tmp_path,
        ["run", root, "--key", KEY, "--every", "1h", "--json"],
        ["materialize", root, "--key", KEY, "--log", "a"],
        ["materialize", root, "--key", KEY, "--json"],
        ["collect", root, "--interval", "0"],
        ["collect", root, "--json"],
        ["scrub", root],
        ["scrub", root, "--json"],
        ["verify", root],
        ["verify", root, "--json"],
        ["run", root, "--key", KEY, "--report", str(report)],
        ["materialize", root, "--key", "no_such_column", "--json"],
        ["scrub", broken],
        ["run", broken, "--key", KEY, "--interval", "0", "--json", "--report", str(report)],
    )

    code, out, err = next(told)
    rounds = json.loads(out)
    assert (code, err, rounds["ok"]) == (0, "", True)
    merged = rounds["stages"][1]
    assert (merged["stage"], merged["logs"]) == ("materialize", 0), "too young to be merged"
    assert Path(rounds["report"]).parent == tmp_path
    assert Path(rounds["report"]).name.startswith("stratalog-run-")

    code, out, _ = next(told)
    assert code == 0
    assert out.startswith("merged 20 records of 1 log ")
    assert "into 1 row " in out
    assert json.loads(next(told)[1])["records"] == 20

    assert next(told)[1].startswith("collected 40 records of 2 logs ")
    collected = json.loads(next(told)[1])
    assert (collected["logs"], collected["troubles"], collected["looked_at"]) == ([], [], 2)

    assert next(told)[1].startswith("clean: 0 records in 0 fragments of 2 logs")
    scrubbed = json.loads(next(told)[1])
    assert (scrubbed["clean"], len(scrubbed["logs"])) == (True, 2)

    assert next(told)[1].startswith("2 logs with 0 records (0 B) fit together")
    assert json.loads(next(told)[1])["findings"] == []

    code, out, _ = next(told)
    assert code == 0
    for words in ("roll-up", "verify", "hashed", "fit together", f"report: {report}"):
        assert words in out
    assert "<!doctype html>" in report.read_text(encoding="utf-8")

    code, out, err = next(told)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert json.loads(err)["kind"] == "invalid"

    code, out, _ = next(told)
    assert code == 13
    assert "fragment-missing" in out
    assert "1 damage; examined 20 records" in out
    code, out, _ = next(told)
    assert (code, json.loads(out)["ok"]) == (13, False)
