"""The small HTTP server answers probes and scrapers, and bounds everybody else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from stratalog.broker.http import Server, serve
from stratalog.broker.http import server as subject
from stratalog.broker.http.server import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    Page,
    PageServer,
    requested,
)
from stratalog.broker.options import Address
from stratalog.errors import Invalid, Unavailable

LOOPBACK = Address("127.0.0.1", 0)
TIMEOUT_S = 30.0


def failing() -> Page:
    raise ValueError("a secret of the inside")


def with_server(work: Callable[[PageServer], Awaitable[None]]) -> None:
    async def run() -> None:
        server = PageServer({"/page": lambda: Page(b"hello\n"), "/broken": failing})
        await server.listen(LOOPBACK)
        try:
            await asyncio.wait_for(work(server), TIMEOUT_S)
        finally:
            await server.close()

    asyncio.run(run())


async def send(server: PageServer | Server, data: bytes, *, eof: bool = False) -> bytes:
    """What comes back until the server closes."""
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    try:
        writer.write(data)
        if eof:
            writer.write_eof()
        return await reader.read()
    finally:
        await end(writer)


async def end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def status(server: PageServer, data: bytes) -> int:
    return int((await send(server, data)).split(b" ", 2)[1])


async def answered(server: PageServer) -> bool:
    """Whether a request gets an answer. Otherwise its connection is closed."""
    try:
        return bool(await send(server, b"GET /page HTTP/1.1\r\n\r\n"))
    except ConnectionError:
        return False


def test_a_page_is_answered_with_its_length_and_the_connection_ends() -> None:
    async def work(server: PageServer) -> None:
        answer = await send(server, b"GET /page?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Length: 6" in head
        assert b"Connection: close" in head
        assert body == b"hello\n"

    with_server(work)


def test_head_has_the_same_head_and_no_body() -> None:
    async def work(server: PageServer) -> None:
        get = await send(server, b"GET /page HTTP/1.1\r\n\r\n")
        head = await send(server, b"HEAD /page HTTP/1.1\r\n\r\n")
        assert head == get.partition(b"hello")[0]

    with_server(work)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", 404),
        (b"POST /page HTTP/1.1\r\n\r\n", 405),
        (b"GET /page\r\n\r\n", 400),
        (b"GET page HTTP/1.1\r\n\r\n", 400),
        (b"\xff\xfe /page HTTP/1.1\r\n\r\n", 400),
        (b"GET /page HTTP/2\r\n\r\n", 400),
        (b"GET /page HTTP/1.1\r\nX: " + b"a" * 2 * HEAD_BYTES_MAX + b"\r\n\r\n", 431),
        (b"a" * 2 * HEAD_BYTES_MAX, 431),
        (b"GET /broken HTTP/1.1\r\n\r\n", 500),
    ],
)
def test_what_cannot_be_answered_gets_its_status(
    data: bytes, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(server: PageServer) -> None:
        assert await status(server, data) == expected
        assert await status(server, b"GET /page HTTP/1.1\r\n\r\n") == 200

    with_server(work)
    assert bool(caplog.records) is (expected == 500)


def test_a_defect_shows_nothing_of_the_inside() -> None:
    async def work(server: PageServer) -> None:
        answer = await send(server, b"GET /broken HTTP/1.1\r\n\r\n")
        assert b"secret" not in answer

    with_server(work)


def test_a_request_that_ends_half_way_is_closed_without_an_answer() -> None:
    async def work(server: PageServer) -> None:
        assert await send(server, b"GET /pa", eof=True) == b""

    with_server(work)


def test_a_slow_request_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "HEAD_S_MAX", 0.05)

    async def work(server: PageServer) -> None:
        assert await status(server, b"GET /page HTTP/1.1\r\n") == 408

    with_server(work)


def test_many_silent_connections_do_not_exceed_the_limit() -> None:
    async def work(server: PageServer) -> None:
        address = server.address
        silent = [
            await asyncio.open_connection(address.host, address.port)
            for _ in range(CONNECTIONS_MAX)
        ]
        assert await answered(server) is False
        for _, writer in silent:
            await end(writer)
        while not await answered(server):
            await asyncio.sleep(0)

    with_server(work)


def test_closing_drops_what_is_still_open() -> None:
    async def run() -> None:
        server = PageServer({})
        await server.listen(LOOPBACK)
        address = server.address
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET /")
        await server.close()
        try:
            assert await reader.read() == b""
        except ConnectionError:
            pass
        finally:
            await end(writer)

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


def test_a_port_that_is_taken_is_refused_with_the_option_to_change() -> None:
    async def work(server: PageServer) -> None:
        with pytest.raises(Unavailable, match="cannot listen at") as refused:
            await PageServer({}).listen(server.address)
        assert "--http" in refused.value.hint

    with_server(work)


def test_an_address_is_known_only_while_it_listens() -> None:
    with pytest.raises(Invalid, match="does not listen yet"):
        _ = PageServer({}).address


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"GET / HTTP/1.1\r\n", ("GET", "/")),
        (b"GET /a?b=c HTTP/1.0\r\n", ("GET", "/a")),
        (b"GET  / HTTP/1.1\r\n", None),
        (b"", None),
    ],
)
def test_the_first_line_names_a_method_and_a_path(
    head: bytes, expected: tuple[str, str] | None
) -> None:
    assert requested(head) == expected


def test_probes_are_answered_before_a_broker_is_open_and_while_it_stops() -> None:
    async def run() -> None:
        server = await serve(LOOPBACK)
        try:
            for state in ("opening", "stopping"):
                ready = await send(server, b"GET /readyz HTTP/1.1\r\n\r\n")
                assert ready.startswith(b"HTTP/1.1 503 ")
                assert f'"ready":false,"state":"{state}"'.encode() in ready
                alive = await send(server, b"GET /healthz HTTP/1.1\r\n\r\n")
                assert alive.startswith(b"HTTP/1.1 200 ")
                metrics = await send(server, b"GET /metrics HTTP/1.1\r\n\r\n")
                assert b"# TYPE stratalog_broker_" in metrics
                server.stopping()
        finally:
            await server.close()

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
