"""The places of a bench's logs: a local directory, and SeaweedFS as the S3 server."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from s3_server import begin_run, end_run, shared_server


class Place(Protocol):
    """A kind of store with any number of empty locations."""

    @property
    def name(self) -> str: ...

    def new(self) -> str:
        """The URL of an empty location."""
        ...

    def drop(self, url: str) -> None:
        """The location is no longer needed."""
        ...


class DirectoryPlace:
    """Directories on the local disk, synced as the store always does."""

    name = "directory"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new(self) -> str:
        return (self._folder / uuid.uuid4().hex[:12]).as_uri()

    def drop(self, url: str) -> None:
        shutil.rmtree(url.removeprefix("file://"), ignore_errors=True)


class SeaweedPlace:
    """Prefixes in a bucket of the run's own server, which is discarded as a whole."""

    name = "SeaweedFS"

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket

    def new(self) -> str:
        return f"s3://{self._bucket}/{uuid.uuid4().hex[:12]}"

    def drop(self, url: str) -> None:
        """Nothing: the server is discarded at the end, with its data."""


@contextmanager
def directory_place() -> Iterator[DirectoryPlace]:
    folder = Path(tempfile.mkdtemp(prefix="stratalog-bench-"))
    try:
        yield DirectoryPlace(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def seaweed_place() -> Iterator[SeaweedPlace]:
    """Start the server. The environment has its address and keys, for children too."""
    owner = begin_run()
    before = dict(os.environ)
    try:
        server = shared_server()
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]
        os.environ.update(server.environment)
        yield SeaweedPlace(server.bucket)
    finally:
        _restore_aws(before)
        if owner:
            end_run()


def _restore_aws(before: dict[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update({name: text for name, text in before.items() if name.startswith("AWS_")})
