"""Fixtures for every test: the S3 server of the run, and a fresh place on each kind of store."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3_server import S3Server, begin_run, end_run, shared_server

_OWNS_RUN = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_OWNS_RUN] = begin_run()


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
