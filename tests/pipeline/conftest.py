"""One Spark session for all tests that ask for one, and one process that they all run in."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.cluster import SHORT_LIVED
from s3_server import S3Server
from stratalog.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """With ``--dist loadgroup`` the tests of a group run in one process."""
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    for item in ours:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
    yield
    if config.getoption("loadgroup", False):
        for item in ours:
            _tell_group(item)


def _tell_group(item: pytest.Item) -> None:
    """Put the group into the test's id, where xdist looks for it.

    xdist 3.8 does it itself, but pytest 9.2 takes no notice (pytest-dev/pytest-xdist#1386).
    """
    group = item.get_closest_marker("xdist_group")
    if group is not None and not item.nodeid.endswith(f"@{group.args[0]}"):
        item._id = type(item.id).parse(f"{item.nodeid}@{group.args[0]}")


@pytest.fixture(scope="session")
def worker_path() -> str:
    """The PYTHONPATH with which Spark's workers find what tests hand to them."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(ROOT / "tests"), str(ROOT), *([inherited] if inherited else [])])


@pytest.fixture(scope="session")
def spark(s3_server: S3Server, worker_path: str) -> Iterator[SparkSession]:
    """The session of this process. Its workers know the S3 server of the run.

    Workers inherit the environment of the JVM, which starts now, so the server must be up before.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", worker_path)
        conf = {"spark.driver.extraJavaOptions": SHORT_LIVED}
        with session(master="local[2]", conf=conf, name="stratalog-tests") as opened:
            yield opened
