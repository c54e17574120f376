"""Mutated batches and HTTP heads."""

from __future__ import annotations

import asyncio
from random import Random

from broker.fuzz.doors import fuzz_batches, fuzz_heads, mutated_heads
from stratalog.broker.http import serve
from stratalog.broker.options import Address

BATCHES = 10_000
HEADS = 5_000
SENT_HEADS = 150


def test_mutated_batches_are_refused_or_decoded_or_undecodable() -> None:
    taken, decoded = fuzz_batches(0, BATCHES)
    assert BATCHES // 20 < taken < BATCHES
    assert 0 < decoded < taken


def test_mutated_heads_name_a_page_or_are_malformed() -> None:
    assert 0 < fuzz_heads(0, HEADS) < HEADS


def test_a_page_is_served_beside_mutated_requests() -> None:
    async def main() -> None:
        pages = await serve(Address("127.0.0.1", 0))
        try:
            for head in mutated_heads(Random(1), SENT_HEADS):
                await send(pages.address, head)
            answer = await send(pages.address, b"GET /healthz HTTP/1.1\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 ")
        finally:
            await pages.close()

    asyncio.run(asyncio.wait_for(main(), 60))


async def send(address: Address, data: bytes) -> bytes:
    """What comes back until the connection is closed."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(data)
        writer.write_eof()
        answer = await reader.read()
    except ConnectionError:
        answer = b""
    finally:
        writer.close()
    assert not answer or answer.startswith(b"HTTP/1.1 ")
    return answer
