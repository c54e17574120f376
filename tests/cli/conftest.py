"""A broker for the tests that ask for one and leave it alive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clients.running_broker import RunningBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    running = RunningBroker(tmp_path_factory.mktemp("broker"))
    try:
        yield running
    finally:
        running.ends()


@pytest.fixture
def bootstrap(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> str:
    """The broker's address, which commands find in the environment."""
    monkeypatch.setenv("STRATALOG_BOOTSTRAP", broker.address)
    return broker.address
