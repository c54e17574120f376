"""Opening a Spark session: the right Java, the right Python, and nothing printed.

    master     local[*] if nothing else is said; local[N], spark://host:port, yarn, k8s://…
    remote     sc://host:15002, a server of Spark Connect; needs no Java here
    conf       settings of Spark, which win over those below

What is set unless ``conf`` or the site's ``spark-defaults.conf`` says otherwise:

    everywhere    no user interface, no progress bar, no log; times in UTC; Arrow
    local only    sockets on 127.0.0.1 alone; as many shuffle partitions as cores; at most 2 GiB and
                  at most a quarter of this machine's memory; tables in the temporary directory

Whoever sets ``spark.log.level`` or ``spark.ui.showConsoleProgress`` gets what the JVM prints, on
standard error. A session that exists already is used as it is: of all the settings only ``conf`` is
applied to it. Under ``spark-submit`` the settings are those of the submission, likewise.

The JVM lives as long as this process. What a JVM takes only at its start (``spark.driver.memory``,
jars, options of Java) must therefore be in the first call.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stratalog.errors import Invalid, Unavailable
from stratalog.pipeline.spark import (
    check_conf,
    choose_place,
    cores_here,
    default_settings,
    find_java,
    memory_bytes_here,
    readable_spark_errors,
    site_settings,
    telling_line,
    wants_to_hear,
)
from stratalog.store import redact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_TIMEOUT_S = 10.0
JVM_EXIT_TIMEOUT_S = 30.0
MASTER_PORT = 7077
CONNECT_PORT = 15002
STDERR = 2

# What Spark Connect imports, and the package that has it.
CONNECT_PACKAGES = {
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "zstandard": "zstandard",
}

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_NOISE = re.compile(r"^(?:\s|WARNING: |Using |Setting |To adjust |Usage: |\d\d/\d\d/\d\d )|^$")
_MAIN = 'Exception in thread "main" '


def open_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] = {},
    name: str = "stratalog",
) -> SparkSession:
    """The Spark session of this process, opened if there is none. ``stop()`` it when done."""
    require_pyspark()
    check_conf(conf)
    site = site_settings(os.environ)
    place = choose_place(master, remote, conf, os.environ, site)
    asked = {"spark.master": master, "spark.remote": remote}
    conf = {**conf, **{key: value for key, value in asked.items() if value is not None}}
    with readable_spark_errors(otherwise=Invalid):
        if has_session():
            return _use_existing(conf)
        if not wants_to_hear({**site, **conf}):
            _silence_pyspark()
        if place.remote is not None:
            return _open_remote(place.remote, conf)
        assert place.master is not None
        return _open_classic(place.master, conf, site, name)


@contextmanager
def session(
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] = {},
    name: str = "stratalog",
) -> Iterator[SparkSession]:
    """A session for a while. One that existed before is used, and is not stopped."""
    require_pyspark()
    existed = has_session()
    spark = open_session(master=master, remote=remote, conf=conf, name=name)
    try:
        yield spark
    finally:
        if not existed:
            _stop(spark)


def has_session() -> bool:
    """Whether this process has a Spark session, or a context that one would be opened on."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        try:
            SparkSession.active()
        except PySparkRuntimeError:
            return False
        return True
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


# ---- sessions ----------------------------------------------------------------------------------


def _use_existing(conf: Mapping[str, str]) -> SparkSession:
    """The session that is there, with these settings, if it is where it was asked for."""
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        spark = SparkSession.active()
        there, is_elsewhere = "a Spark Connect server", "spark.master" in conf
    else:
        spark = SparkSession.builder.getOrCreate()
        there = str(spark.sparkContext.master)
        is_elsewhere = "spark.remote" in conf or conf.get("spark.master", there) != there
    if is_elsewhere:
        raise Invalid(
            f"this process has a Spark session already, on {there}",
            hint="Use that one, or stop it first.",
        )
    _set_all(spark, conf)
    return spark


def _set_all(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Apply settings to a running session. PySpark itself ignores those that come too late."""
    for key, value in conf.items():
        if key not in ("spark.master", "spark.remote") and spark.conf.get(key, None) != value:
            spark.conf.set(key, value)


def _open_remote(url: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    _require_connect()
    address = urlsplit(url)
    if not any(proxy in os.environ for proxy in _PROXIES):
        _require_answer(
            "Spark Connect server", [(str(address.hostname), address.port or CONNECT_PORT)]
        )
    spark = SparkSession.builder.remote(url).getOrCreate()
    _set_all(spark, {"spark.sql.session.timeZone": "UTC", **conf})
    return spark


def _open_classic(
    master: str, conf: Mapping[str, str], site: Mapping[str, str], name: str
) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise Invalid(
            "this process was a client of Spark Connect, and PySpark cannot be both",
            hint="Open the session in a process of its own.",
        )
    if master.startswith("spark://"):
        _require_answer("Spark master", _addresses(master.removeprefix("spark://")))
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = dict(conf)
    if not is_submitted:
        defaults = default_settings(
            master, cores=cores_here(), memory_bytes=memory_bytes_here(), environment=os.environ
        )
        settings = {
            "spark.master": master,
            "spark.app.name": name,
            **{key: value for key, value in defaults.items() if key not in site},
            **conf,
        }
        if warehouse := defaults.get("spark.sql.warehouse.dir"):
            atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
    is_heard = is_submitted or wants_to_hear({**site, **conf})
    with _environment(conf, needs_java=not is_submitted and SparkContext._gateway is None):
        if SparkContext._gateway is None:
            gateway = _launch(settings, is_heard=is_heard)
            SparkContext(conf=SparkConf().setAll(list(settings.items())), gateway=gateway)
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    try:
        spark.conf.get("spark.sql.session.timeZone")  # Spark looks at its settings only now
    except BaseException:
        spark.stop()
        raise
    return spark


def _stop(spark: SparkSession) -> None:
    try:
        spark.stop()
    except OSError:  # the JVM is gone; what is left of the session is on this side
        spark.sparkContext.stop()


@contextmanager
def _environment(conf: Mapping[str, str], *, needs_java: bool) -> Iterator[None]:
    """The variables that Spark is started with. Afterwards they are what they were."""
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    driver_python = os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable)
    variables = {
        "PYSPARK_PYTHON": conf.get("spark.pyspark.python", python),
        "PYSPARK_DRIVER_PYTHON": conf.get("spark.pyspark.driver.python", driver_python),
    }
    if needs_java:
        variables["JAVA_HOME"] = str(find_java().home)
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _launch(settings: Mapping[str, str], *, is_heard: bool) -> Any:
    """Start the JVM. What it prints is kept for the case that it does not start."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setAll(list(settings.items()))
    gateway, told = None, ""
    with tempfile.TemporaryFile() as printed, warnings.catch_warnings():
        # Python 3.12 warns that PySpark forks; the child runs one function and then Java.
        warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
        # PySpark does not close the input of a JVM that did not start.
        warnings.filterwarnings("ignore", "unclosed file", ResourceWarning)
        streams = {"stdout": STDERR} if is_heard else {"stdout": printed, "stderr": printed}
        try:
            gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError:
            printed.seek(0)
            told = told_by_jvm(printed.read().decode(errors="replace"))
    if gateway is None:
        raise Invalid(
            f"Spark does not start: {told or 'see above'}",
            hint="Correct what the message names, in conf= or in the environment.",
        )
    if gateway.proc is not None:
        atexit.register(_end, gateway.proc, gateway._gateway_client)
    return gateway


def _end(jvm: subprocess.Popen[bytes], client: Any) -> None:
    """Wait until the JVM has cleaned up. It ends when its standard input does.

    Py4J would go on to tell it which objects are not needed any more, and complain that it is gone.
    """
    client.is_connected = False
    assert jvm.stdin is not None
    jvm.stdin.close()
    try:
        jvm.wait(JVM_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def told_by_jvm(printed: str) -> str:
    """Of all that a JVM printed that did not start, the line that says why."""
    lines = [line for line in printed.splitlines() if not _NOISE.match(line)]
    thrown = [line.removeprefix(_MAIN) for line in lines if line.startswith(_MAIN)]
    told = (thrown or lines or [""])[0].removeprefix("Error: ")
    return redact(telling_line(told)) if told else ""


def _silence_pyspark() -> None:
    """PySpark logs some errors by itself before it raises them, with the stack of the JVM."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Py4J tells the root logger, with two stacks, that it was interrupted; and raises that too."""
    return "py4j" not in Path(record.pathname).parts


# ---- what is there -----------------------------------------------------------------------------


def require_pyspark() -> None:
    """To be called before a module is imported that imports Spark."""
    missing = [package for package in ("pyspark", "pandas") if not _has(package)]
    if missing:
        raise Invalid(
            f"Spark is not installed: there is no package {' and no package '.join(missing)}",
            hint='Install it: `pip install "stratalog[spark]"`.',
        )


def _require_connect() -> None:
    from pyspark import __version__

    missing = [package for module, package in CONNECT_PACKAGES.items() if not _has(module)]
    if missing:
        raise Invalid(
            f"Spark Connect needs packages that are not installed: {', '.join(missing)}",
            hint=f'Install them: `pip install "pyspark[connect]=={__version__}"`.',
        )


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _require_answer(what: str, addresses: Sequence[tuple[str, int]]) -> None:
    """Spark itself would try for a minute, or for ten, before it says that nobody is there."""
    for address in addresses:
        try:
            socket.create_connection(address, CONNECT_TIMEOUT_S).close()
        except OSError:
            continue
        return
    places = ", ".join(f"{host}:{port}" for host, port in addresses)
    raise Unavailable(
        f"no {what} answers at {places}",
        hint="Check that it runs, and that this machine can reach it.",
    )


def _addresses(text: str) -> list[tuple[str, int]]:
    """``host:port,host:port`` taken apart."""
    try:
        parts = [urlsplit(f"//{each}") for each in text.split(",")]
        return [(part.hostname or "", part.port or MASTER_PORT) for part in parts]
    except ValueError as error:
        raise Invalid(
            f"not the URL of a Spark master: spark://{text}", hint="Write spark://host:7077."
        ) from error
