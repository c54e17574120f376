"""Transactions are refused where they begin, by a code that clients report and do not retry."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from broker.in_memory import memory_broker
from broker.plugged import PluggedBroker, play

FIND_COORDINATOR, INIT_PRODUCER_ID = 10, 22
REFUSAL = ErrorCode.transactional_id_authorization_failed


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize("key_type", [1, 2, -1])
def test_there_is_no_coordinator_of_transactions(version: int, key_type: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        schema: Any = load_request_schema(FIND_COORDINATOR, version)
        keys = {"coordinator_keys": ("tx",)} if version >= 4 else {"key": "tx"}
        answer: Any = await broker.client().ask(
            schema(key_type=key_type, **keys), load_response_schema(FIND_COORDINATOR, version)
        )
        found = answer.coordinators[0] if version >= 4 else answer
        assert found.error_code is REFUSAL
        assert (found.node_id, found.host, found.port) == (-1, "", -1)
        assert found.error_message == "This broker has no transactions."

    play(test)


@pytest.mark.parametrize("version", range(5))
def test_a_producer_with_a_transactional_id_gets_no_id(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        schema: Any = load_request_schema(INIT_PRODUCER_ID, version)
        client = broker.client()
        known: dict[str, Any] = {"producer_id": -1, "producer_epoch": -1}
        given = {name: known[name] for name in known if name in schema.__annotations__}

        async def ask(name: str | None) -> Any:
            request = schema(
                transactional_id=name, transaction_timeout=timedelta(minutes=1), **given
            )
            return await client.ask(request, load_response_schema(INIT_PRODUCER_ID, version))

        refused = await ask("tx")
        assert (refused.error_code, refused.producer_id) == (REFUSAL, -1)
        ids = [(await ask(None)).producer_id for _ in range(3)]
        assert ids == [0, 1, 2]

    play(test)


def test_librdkafka_reports_the_refusal_at_once() -> None:
    def begin(address: str) -> KafkaError:
        producer = Producer({"bootstrap.servers": address, "transactional.id": "tx"})
        with pytest.raises(KafkaException) as refused:
            producer.init_transactions(30)
        error = refused.value.args[0]
        assert isinstance(error, KafkaError)
        return error

    async def main() -> None:
        async with memory_broker() as broker:
            begun = asyncio.get_running_loop().time()
            error = await asyncio.to_thread(begin, str(broker.address))
            assert error.code() == REFUSAL.value
            assert error.fatal()
            assert not error.retriable()
            assert asyncio.get_running_loop().time() - begun < 15

    asyncio.run(main())
