"""Starting the JVM of Spark, and waiting for its end. Nothing that it prints is shown."""

import atexit
import logging
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stratalog.errors import Invalid
from stratalog.pipeline.spark.errors import telling_line
from stratalog.pipeline.spark.java import find_java
from stratalog.store import redact

JVM_EXIT_TIMEOUT_S = 30.0
STDERR = 2

_NOISE = re.compile(r"^(?:\s|WARNING: |Using |Setting |To adjust |Usage: |\d\d/\d\d/\d\d )|^$")
_MAIN = 'Exception in thread "main" '


@contextmanager
def jvm_environment(conf: Mapping[str, str], *, needs_java: bool) -> Iterator[None]:
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


def launch_jvm(settings: Mapping[str, str], *, is_heard: bool) -> Any:
    """Start the JVM. What it prints is kept in case it does not start."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setAll(list(settings.items()))
    gateway, reason = None, ""
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
            reason = reason_in_output(printed.read().decode(errors="replace"))
    if gateway is None:
        raise Invalid(
            f"Spark does not start: {reason or 'see above'}",
            hint="Correct what the message names, in conf= or in the environment.",
        )
    if gateway.proc is not None:
        atexit.register(_end, gateway.proc, gateway._gateway_client)
    return gateway


def _end(jvm: subprocess.Popen[bytes], client: Any) -> None:
    """Wait until the JVM has cleaned up. It ends when its standard input does.

    Py4J would go on to report which objects are not needed any more, and complain that it is gone.
    """
    client.is_connected = False
    assert jvm.stdin is not None
    jvm.stdin.close()
    try:
        jvm.wait(JVM_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def reason_in_output(printed: str) -> str:
    """Of all that a JVM printed that did not start, the line that says why."""
    lines = [line for line in printed.splitlines() if not _NOISE.match(line)]
    thrown = [line.removeprefix(_MAIN) for line in lines if line.startswith(_MAIN)]
    reason = (thrown or lines or [""])[0].removeprefix("Error: ")
    return redact(telling_line(reason)) if reason else ""


def silence_pyspark() -> None:
    """PySpark logs some errors by itself before it raises them, with the stack of the JVM."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Py4J logs to the root logger, with two stacks, that it was interrupted, and raises that."""
    return "py4j" not in Path(record.pathname).parts
