"""A broker for all tests that leave it alive, and the published clients."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from clients.every_client import CLIENTS
from clients.published_client import PublishedClient
from clients.running_broker import RunningBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    running = RunningBroker(tmp_path_factory.mktemp("broker"))
    try:
        yield running
    finally:
        running.ends()


@pytest.fixture(scope="session")
def address(broker: RunningBroker) -> str:
    return broker.address


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, address: str) -> PublishedClient:
    """Each published client in turn."""
    return CLIENTS[request.param](address)


@pytest.fixture
def topic(client: PublishedClient) -> Iterator[str]:
    """A new topic of one partition."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    client.create_topic(name)
    yield name
    client.delete_topic(name)


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"
