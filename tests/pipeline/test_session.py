"""A session has the right Java and Python, prints nothing, leaves nothing, says what is wrong."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import signals
from jvm import SHORT_LIVED
from s3_server import FOLDER_VARIABLE
from stratalog.errors import Invalid, Unavailable
from stratalog.pipeline.session import open_session
from stratalog.pipeline.spark.java import find_java
from stratalog.pipeline.spark.jvm import reason_in_output
from stratalog.pipeline.spark.settings import (
    Place,
    check_conf,
    choose_place,
    default_settings,
    driver_memory_mib,
    site_settings,
    wants_to_hear,
)

SOURCES = Path(__file__).parents[2] / "src"
GIB = 1024**3

sessions = importlib.import_module("stratalog.pipeline.session")


def place(
    master: str | None = None,
    remote: str | None = None,
    conf: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    site: dict[str, str] | None = None,
) -> Place:
    return choose_place(master, remote, conf or {}, environment or {}, site or {})


def defaults(master: str, **environment: str) -> dict[str, str]:
    return default_settings(master, environment, cores=6, memory_bytes=16 * GIB)


def test_a_local_session_puts_its_scratch_where_tmpdir_says() -> None:
    """Java does not look at the variable by itself."""
    option = "spark.driver.defaultJavaOptions"
    assert defaults("local", TMPDIR="/a place")[option] == '"-Djava.io.tmpdir=/a place"'
    assert option not in defaults("local")
    assert option not in defaults("yarn", TMPDIR="/a")


def closed_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


# ---- what was asked for ------------------------------------------------------------------------


def test_work_is_done_here_unless_somebody_says_otherwise() -> None:
    assert place() == Place("local[*]", None)
    assert place("spark://a:7077") == Place("spark://a:7077", None)
    assert place(conf={"spark.master": "yarn"}) == Place("yarn", None)
    assert place(environment={"MASTER": "local[3]"}) == Place("local[3]", None)
    assert place(site={"spark.master": "yarn"}) == Place("yarn", None)
    assert place(remote="sc://a") == Place(None, "sc://a")
    assert place(environment={"SPARK_REMOTE": "sc://a:1/;token=x"}).remote == "sc://a:1/;token=x"
    assert place("local", site={"spark.master": "yarn"}).master == "local"


@pytest.mark.parametrize(
    "asked",
    [
        {"master": "local", "remote": "sc://a"},
        {"master": "local", "conf": {"spark.remote": "sc://a"}},
        {"master": "local", "conf": {"spark.master": "yarn"}},
        {"master": "local", "environment": {"SPARK_REMOTE": "sc://a"}},
        {"environment": {"SPARK_REMOTE": "sc://a", "MASTER": "local"}},
        {"master": "sc://a"},
        {"remote": "a:15002"},
        {"remote": "local[2]"},
        {"remote": "sc://"},
    ],
)
def test_a_place_that_cannot_be_meant_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        place(**asked)


def test_a_token_does_not_get_into_the_refusal() -> None:
    with pytest.raises(Invalid) as refused:
        place("local", "sc://a/;token=hunter2")
    assert "hunter2" not in refused.value.message + refused.value.hint


def test_a_local_session_stays_on_loopback_and_takes_a_part_of_the_machine() -> None:
    settings = defaults("local[*]")
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.sql.shuffle.partitions"] == "6"
    assert settings["spark.driver.memory"] == "2048m"
    assert not Path(settings["spark.sql.warehouse.dir"]).is_relative_to(Path.cwd())


@pytest.mark.parametrize(
    ("master", "partitions"),
    [("local", "1"), ("local[3]", "3"), ("local[ 4 , 2 ]", "4"), ("local-cluster[2,1,512]", None)],
)
def test_a_local_session_shuffles_with_its_cores(master: str, partitions: str | None) -> None:
    assert defaults(master).get("spark.sql.shuffle.partitions") == partitions


def test_a_cluster_decides_for_itself_where_it_listens_and_what_it_takes() -> None:
    assert set(defaults("spark://a:7077")) == {
        "spark.ui.enabled",
        "spark.ui.showConsoleProgress",
        "spark.log.level",
        "spark.sql.session.timeZone",
        "spark.sql.execution.arrow.pyspark.enabled",
    }


def test_memory_set_by_environment_is_left_alone() -> None:
    assert "spark.driver.memory" not in defaults("local", SPARK_DRIVER_MEMORY="9g")


@pytest.mark.parametrize(("gib", "mib"), [(64, 2048), (8, 2048), (4, 1024), (1, 512)])
def test_memory_is_a_quarter_within_bounds(gib: int, mib: int) -> None:
    assert driver_memory_mib(gib * GIB) == mib


def test_the_settings_of_a_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        "# a comment\n\nspark.master   yarn\nspark.ui.enabled=true\n  spark.a : x y\nspark.b\n"
    )
    expected = {
        "spark.master": "yarn",
        "spark.ui.enabled": "true",
        "spark.a": "x y",
        "spark.b": "spark.b",
    }
    assert site_settings({"SPARK_HOME": str(tmp_path)}) == expected
    assert site_settings({"SPARK_CONF_DIR": str(tmp_path / "conf")}) == expected
    assert site_settings({"SPARK_HOME": str(tmp_path / "conf")}) == {}
    assert site_settings({}) == {}


def test_what_spark_would_ignore_is_refused() -> None:
    with pytest.raises(Invalid, match=r"'fs\.s3a\.endpoint'") as refused:
        check_conf({"spark.ui.enabled": "true", "fs.s3a.endpoint": "x"})
    assert "spark.hadoop." in refused.value.hint


def test_the_jvm_is_heard_if_somebody_asks_for_what_it_prints() -> None:
    assert not wants_to_hear({"spark.executor.memory": "1g"})
    assert wants_to_hear({"spark.log.level": "WARN"})
    assert wants_to_hear({"spark.ui.showConsoleProgress": "true"})
    assert wants_to_hear({"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=x"})


INCUBATOR = "WARNING: Using incubator modules: jdk.incubator.vector\n"
NO_HEAP = "Invalid maximum heap size: -Xmxlots\nError: Could not create the Java Virtual Machine.\n"
NO_MASTER = """Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/01/01 12:00:00 WARN Utils: Your hostname, vm, resolves to a loopback address: 127.0.0.1
Exception in thread "main" org.apache.spark.SparkException: Master must be this
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
"""
NO_MEMORY = """Error: A JNI error has occurred, please check your installation
Exception in thread "main" java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.util.zip.ZipFile$Source.initCEN(ZipFile.java:1677)
"""
NO_SUCH_OPTION = """Error: Not allowed to specify max heap.

Usage: spark-submit [options] <app jar | python file | R file> [app arguments]
  --master MASTER_URL         spark://host:port, yarn,
"""


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (NO_HEAP, "Invalid maximum heap size: -Xmxlots"),
        (INCUBATOR + NO_MASTER, "Master must be this"),
        (INCUBATOR + NO_MEMORY, "OutOfMemoryError: Java heap space"),
        (NO_SUCH_OPTION, "Not allowed to specify max heap."),
        (INCUBATOR, ""),
        ("", ""),
    ],
)
def test_of_all_that_a_jvm_prints_the_reason_is_kept(printed: str, told: str) -> None:
    assert reason_in_output(printed) == told


# ---- what is there -----------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["pyspark", "pandas"])
def test_what_spark_lacks_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Invalid, match=f"no package {package}") as refused:
        open_session()
    assert 'pip install "stratalog[spark]"' in refused.value.hint


def test_the_modules_can_be_imported_without_pyspark() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None\n"
        "from stratalog.pipeline import session, spark"
    )
    subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCES)}, check=True, timeout=60
    )


def test_what_spark_connect_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "has_session", lambda: False)
    monkeypatch.setattr(sessions, "has_module", lambda module: module not in ("grpc", "zstandard"))
    with pytest.raises(Invalid, match="not installed: grpcio, zstandard") as refused:
        open_session(remote="sc://127.0.0.1")
    assert 'pip install "pyspark[connect]==' in refused.value.hint


@pytest.mark.parametrize(("kind", "scheme"), [("master", "spark"), ("remote", "sc")])
def test_nobody_at_the_address_is_said_at_once(
    kind: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "has_session", lambda: False)
    monkeypatch.setattr(sessions, "has_module", lambda _: True)
    for proxy in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(proxy, raising=False)
    address = f"127.0.0.1:{closed_port()}"
    with pytest.raises(Unavailable, match=f"answers at {address}"):
        open_session(conf={f"spark.{kind}": f"{scheme}://{address}"})


def test_a_master_whose_port_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "has_session", lambda: False)
    with pytest.raises(Invalid, match="spark://a:b"):
        open_session(master="spark://a:b")


# ---- with Spark itself, in processes of their own ----------------------------------------------

PROGRAM = """
import json, os, sys
from stratalog.errors import StratalogError
from stratalog.pipeline.session import has_session, open_session, session

def refusal(**asked):
    try:
        open_session(**asked)
    except StratalogError as error:
        return [error.kind, error.message, error.hint, str(has_session())]

local = dict(master="local[2]", name="told")
quick = {"spark.driver.extraJavaOptions": sys.argv[1]}
told = {
    "memory": refusal(master="local", conf={"spark.driver.memory": "lots"}),
    "partitions": refusal(master="local", conf={**quick, "spark.sql.shuffle.partitions": "many"}),
    "cores": refusal(master="local[two]"),
}
with session(**local, conf={"spark.sql.session.timeZone": "Europe/Berlin"}) as spark:
    from pyspark import SparkContext

    spark.range(3).write.saveAsTable("things")
    told |= {
        "jvm": SparkContext._gateway.proc.pid,
        "java": spark._jvm.java.lang.System.getProperty("java.home"),
        "python": spark.sparkContext.pythonExec,
        "settings": dict(spark.sparkContext.getConf().getAll()),
        "rows": spark.table("things").count(),
        "environment": sorted({"JAVA_HOME", "PYSPARK_PYTHON"} & set(os.environ)),
    }
    with session(conf={"spark.sql.shuffle.partitions": "7"}) as same:
        told["same"] = same is spark
        told["applied"] = [
            spark.conf.get("spark.sql.shuffle.partitions"),
            spark.conf.get("spark.sql.session.timeZone"),
        ]
    told["went on"] = has_session()
    told["too late"] = refusal(conf={"spark.driver.memory": "1g"})
    told["elsewhere"] = refusal(master="local[7]")
    told["remote"] = refusal(remote="sc://127.0.0.1")
told["ended"] = has_session()
with session(**local) as spark:
    told["again"] = spark.range(5).count()
print(json.dumps(told))
"""


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    kept = ("PATH", "HOME", "LANG", FOLDER_VARIABLE)
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    (folder / "here").mkdir()
    (folder / "tmp").mkdir()
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, SHORT_LIVED],
        cwd=folder / "here",
        env={**environment, "PYTHONPATH": str(SOURCES), "TMPDIR": str(folder / "tmp")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


class Ran:
    """A program that opened sessions: what it told, and what it left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        done = run(PROGRAM, folder)
        assert done.returncode == 0, done.stderr
        self.printed = done.stderr
        self.told: dict[str, Any] = json.loads(done.stdout)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("session"))


@pytest.mark.xdist_group("spark-session")
class TestInAProcess:
    def test_nothing_is_printed(self, ran: Ran) -> None:
        assert ran.printed == ""

    def test_nothing_is_left_behind(self, ran: Ran) -> None:
        assert list((ran.folder / "here").iterdir()) == []
        assert list((ran.folder / "tmp").iterdir()) == []
        with pytest.raises(ProcessLookupError):
            os.kill(ran.told["jvm"], 0)

    def test_java_and_python_are_the_right_ones(self, ran: Ran) -> None:
        assert Path(ran.told["java"]) == find_java({"PATH": os.environ["PATH"]}).home
        assert ran.told["python"] == sys.executable
        assert ran.told["environment"] == []

    def test_conf_wins_over_our_defaults(self, ran: Ran) -> None:
        settings = ran.told["settings"]
        assert settings["spark.sql.session.timeZone"] == "Europe/Berlin"
        assert settings["spark.sql.shuffle.partitions"] == "2"
        assert settings["spark.app.name"] == "told"
        assert settings["spark.driver.host"] == "127.0.0.1"

    def test_it_works_and_works_again(self, ran: Ran) -> None:
        assert (ran.told["rows"], ran.told["again"]) == (3, 5)

    def test_a_session_that_exists_is_used_as_it_is_and_not_stopped(self, ran: Ran) -> None:
        assert ran.told["same"]
        assert ran.told["applied"] == ["7", "Europe/Berlin"]
        assert ran.told["went on"]
        assert not ran.told["ended"]

    @pytest.mark.parametrize(
        ("what", "message"),
        [
            ("memory", "Spark does not start: Invalid maximum heap size: -Xmxlots"),
            (
                "partitions",
                "The value 'many' in the config \"spark.sql.shuffle.partitions\" is inv",
            ),
            ("cores", "Could not parse Master URL: 'local[two]'"),
        ],
    )
    def test_a_wrong_setting_is_refused_and_leaves_no_session(
        self, ran: Ran, what: str, message: str
    ) -> None:
        kind, told, _, has_session = ran.told[what]
        assert (kind, has_session) == ("invalid", "False")
        assert told.startswith(message)

    @pytest.mark.parametrize("what", ["too late", "elsewhere", "remote"])
    def test_a_session_that_exists_does_not_change_its_nature(self, ran: Ran, what: str) -> None:
        kind, _, hint, has_session = ran.told[what]
        assert (kind, has_session) == ("invalid", "True")
        assert "top" in hint


def test_whoever_asks_for_the_log_gets_it(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from stratalog.pipeline.session import session\n"
        "conf = {'spark.log.level': 'WARN', 'spark.driver.extraJavaOptions': sys.argv[1]}\n"
        "with session(master='local[1]', conf=conf):\n"
        "    print('open')\n"
    )
    done = run(program, tmp_path)
    assert (done.returncode, done.stdout) == (0, "open\n")
    assert "WARN" in done.stderr


def test_who_interrupts_a_job_is_not_shown_how_py4j_was_interrupted(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, threading\n"
        "from stratalog.pipeline.session import session\n"
        "conf = {'spark.driver.extraJavaOptions': sys.argv[1]}\n"
        "with session(master='local[1]', conf=conf) as spark:\n"
        "    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    try:\n"
        "        spark.range(10**15).selectExpr('sum(id % 7)').collect()\n"
        "    except KeyboardInterrupt:\n"
        "        print('stopped')\n"
    )
    with signals.default_signals():
        done = run(program, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")
