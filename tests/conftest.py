"""Fixtures for every test: the S3 server of the run, a fresh place on each kind of store, Spark.

There is one Spark session, and all tests that ask for it run in one process.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import worker_deaths
from jvm import SHORT_LIVED
from s3_server import S3Server, begin_run, end_run, run_folder, shared_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parent
OF_THE_CALLER = (
    # How Rich, Typer and Click draw.
    *("COLUMNS", "LINES", "TERMINAL_WIDTH", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "COLORTERM"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE", "CI", "GITHUB_ACTIONS"),
    # Which Spark, and where.
    *("MASTER", "SPARK_REMOTE", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DRIVER_MEMORY"),
)
_OWNS_RUN = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_OWNS_RUN] = owner = begin_run()
    worker_deaths.register(config, run_folder(), owner=owner)


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.stash.get(_OWNS_RUN, False):
        end_run()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """The one SeaweedFS server of this test run, with its address and keys in the environment."""
    server = shared_server()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def s3_url(s3_server: S3Server) -> str:
    """A prefix of its own in the server's bucket."""
    return f"s3://{s3_server.bucket}/{uuid.uuid4().hex[:12]}"


@pytest.fixture(
    params=["memory", "directory", pytest.param("s3", marks=pytest.mark.s3)],
)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh, empty place on each kind of store."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex[:12]}"
    if request.param == "directory":
        return (tmp_path / "store").as_uri()
    url = request.getfixturevalue("s3_url")
    assert isinstance(url, str)
    return url


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With ``--dist loadgroup`` the tests of a group run in one process."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session", autouse=True)
def environment_of_no_caller() -> Iterator[None]:
    """Programs and libraries do not see how the run was started.

    Tests that are about such a variable set it. Servers of the run are here, not behind a proxy.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in OF_THE_CALLER:
            patch.delenv(name, raising=False)
        patch.setenv("TERM", "xterm")
        for name in ("NO_PROXY", "no_proxy"):
            others = os.environ.get(name)
            patch.setenv(name, ",".join([*([others] if others else []), "127.0.0.1", "localhost"]))
        yield


@pytest.fixture(scope="session", autouse=True)
def short_lived_jvms() -> Iterator[None]:
    """Also those that a command or a script starts: Spark takes options for its JVM from here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", SHORT_LIVED)
        yield


@pytest.fixture(scope="session")
def worker_path() -> str:
    """The PYTHONPATH with which Spark's workers find what tests hand to them."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(TESTS), str(TESTS.parent), *([inherited] if inherited else [])])


@pytest.fixture(scope="session")
def spark(s3_server: S3Server, worker_path: str) -> Iterator[SparkSession]:
    """The session of this process. Its workers know the S3 server of the run.

    Workers inherit the environment of the JVM, which starts now, so the server must be up before.
    """
    from stratalog.pipeline.session import session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", worker_path)
        with session(master="local[2]", name="stratalog-tests") as opened:
            yield opened
