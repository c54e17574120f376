"""A connection to a broker fails with an error that says what was wrong and what to do."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest
from kio.schema.errors import ErrorCode

from stratalog.broker.admin import connect, host_and_port
from stratalog.broker.admin.groups import assigned_in
from stratalog.broker.admin.refusal import check, refusal
from stratalog.errors import (
    Conflict,
    Denied,
    Exists,
    Invalid,
    NotFound,
    StratalogError,
    Unavailable,
)

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def connect_to(handler: Handler, timeout_s: float = 10.0) -> None:
    """Connect to a server that behaves like this."""

    async def run() -> None:
        done = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            finally:
                writer.close()
                done.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        try:
            async with connect(f"{host}:{port}", timeout_s=timeout_s):
                pass
        finally:
            await done.wait()
            server.close()
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 30))


async def read_request(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def answering(body: bytes) -> Handler:
    """Answers the first request with this, behind its length and its correlation id."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlation = (await read_request(reader))[4:8]
        answer = correlation + body
        writer.write(struct.pack(">i", len(answer)) + answer)
        await reader.read()

    return handler


def test_nobody_who_listens_is_told_with_the_command_that_starts_a_broker() -> None:
    async def run() -> None:
        async with connect("127.0.0.1:1", timeout_s=5):
            pass

    with pytest.raises(Unavailable, match=r"no broker can be reached at 127\.0\.0\.1:1") as failed:
        asyncio.run(run())
    assert "stratalog serve" in failed.value.hint


def test_a_server_that_hangs_up_is_told() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)

    with pytest.raises(Unavailable, match="closed the connection"):
        connect_to(hang_up)


def test_a_server_that_says_nothing_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    with pytest.raises(Unavailable, match=r"did not answer within 0\.05 s"):
        connect_to(silent, timeout_s=0.05)


def test_a_web_server_is_no_broker() -> None:
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    with pytest.raises(Unavailable, match="does not speak Kafka's protocol") as failed:
        connect_to(web)
    assert "--http" in failed.value.hint


@pytest.mark.parametrize(
    "body",
    [b"", b"\0", b"\0\0", b"\0\0\xff\xff\xff\xff\x0f", b"\0\0\xff\xff\xff\xff", bytes(100)[:3]],
    ids=repr,
)
def test_an_answer_that_cannot_be_read_is_told(body: bytes) -> None:
    with pytest.raises(Unavailable, match="does not speak Kafka's protocol"):
        connect_to(answering(body))


def test_a_broker_that_refuses_the_first_request_is_told() -> None:
    with pytest.raises(Unavailable, match="unsupported_version"):
        connect_to(answering(struct.pack(">hb", 35, 1) + bytes(5)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9093", ("127.0.0.1", 9093)),
        ("broker-1", ("broker-1", 9092)),
        ("[::1]:9093", ("::1", 9093)),
        ("[::1]", ("::1", 9092)),
    ],
)
def test_an_address_is_a_host_and_perhaps_a_port(text: str, expected: tuple[str, int]) -> None:
    assert host_and_port(text) == expected


@pytest.mark.parametrize("text", ["", ":9092", "a:b", "a:99999", "a:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="is no address of a broker"):
        host_and_port(text)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.unknown_topic_or_partition, NotFound),
        (ErrorCode.topic_already_exists, Exists),
        (ErrorCode.non_empty_group, Conflict),
        (ErrorCode.topic_authorization_failed, Denied),
        (ErrorCode.invalid_partitions, Invalid),
        (ErrorCode.not_coordinator, Unavailable),
        (ErrorCode.unknown_server_error, StratalogError),
    ],
)
def test_a_code_of_the_broker_is_an_error_by_what_the_caller_does(
    code: ErrorCode, kind: type[StratalogError]
) -> None:
    error = refusal(code, "topic orders")
    assert type(error) is kind
    assert str(error).startswith("topic orders: ")
    assert error.hint


def test_every_code_has_an_error_and_none_has_not() -> None:
    check(ErrorCode.none, "topic orders")
    for code in ErrorCode:
        if code is not ErrorCode.none:
            with pytest.raises(StratalogError, match=r"topic orders: (because|there is)"):
                check(code, "topic orders", "because")


def test_the_assignment_of_a_member_is_read_whatever_its_version() -> None:
    topic = struct.pack(">h", 1) + b"a" + struct.pack(">iii", 2, 3, 1)
    assignment = struct.pack(">hi", 3, 1) + topic + struct.pack(">i", -1) + b"newer"
    assert assigned_in(assignment) == (("a", 1), ("a", 3))


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\x7f\xff\xff\xff", b"connect's own"])
def test_an_assignment_of_another_kind_has_no_partitions(data: bytes) -> None:
    assert assigned_in(data) == ()
