"""One connection to a broker: a request goes out, its answer comes back, nothing overlaps.

Every step has a time-out, and every way to fail is an error of ours: nobody listens, no answer in
time, an answer that is not Kafka's protocol, an API that the broker does not offer.
"""

from __future__ import annotations

import asyncio
import io
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload, ResponsePayload

from stratalog._version import __version__
from stratalog.broker.wire import Malformed, read_payload
from stratalog.errors import Invalid, Unavailable

CLIENT = "stratalog"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_PORT = 9092
TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 100 * 1024 * 1024

Answer = TypeVar("Answer", bound=ResponsePayload)


def host_and_port(text: str, default_port: int = DEFAULT_PORT) -> tuple[str, int]:
    """An address such as `127.0.0.1:9092`, `[::1]:9092` or `broker-1`, taken apart."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        host, port = text.strip(), str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise Invalid(
            f"{text!r} is no address of a broker", hint="Write HOST:PORT, such as 127.0.0.1:9092."
        )
    return host, int(port)


class Connection:
    """A connection that is used by one task at a time. See ``connect``."""

    def __init__(
        self,
        address: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        timeout_s: float,
    ) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._reader = reader
        self._writer = writer
        self._sent = 0
        self._versions: dict[int, tuple[int, int]] = {}

    async def ask(self, request: RequestPayload, answer: type[Answer]) -> Answer:
        """Send a request and give its answer, whose version is that of the request."""
        self._require(request)
        return await self._exchange(request, answer)

    def offers(self, request: type[RequestPayload]) -> bool:
        """Whether the broker knows this request in this version."""
        low, high = self._versions.get(request.__api_key__, (0, -1))
        return low <= request.__version__ <= high

    async def learn_versions(self) -> None:
        """Ask what the broker speaks. Whatever is no broker fails here."""
        request = ApiVersionsRequest(client_software_name=CLIENT, client_software_version=_SOFTWARE)
        answer = await self._exchange(request, ApiVersionsResponse)
        if answer.error_code is not ErrorCode.none:
            raise self._not_kafka(f"it answers {answer.error_code.name} to the first request")
        self._versions = {
            each.api_key: (each.min_version, each.max_version) for each in answer.api_keys
        }

    def _require(self, request: RequestPayload) -> None:
        if not self.offers(type(request)):
            name = type(request).__name__.removesuffix("Request")
            raise Invalid(
                f"the broker at {self.address} does not offer {name} {request.__version__}",
                hint="Use a newer broker, or this command for what the broker offers.",
            )

    async def _exchange(self, request: RequestPayload, answer: type[Answer]) -> Answer:
        try:
            async with asyncio.timeout(self.timeout_s):
                self._writer.write(self._frame(request))
                await self._writer.drain()
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                if not 4 <= size <= ANSWER_BYTES_MAX:
                    raise self._not_kafka(f"its answer claims to have {size:,} bytes")
                body = await self._reader.readexactly(size)
        except TimeoutError:
            raise Unavailable(
                f"the broker at {self.address} did not answer within {self.timeout_s:g} s",
                hint="It may be busy, or it may be no broker. Look at its log, then try again.",
            ) from None
        except (asyncio.IncompleteReadError, OSError):
            raise Unavailable(
                f"the broker at {self.address} closed the connection",
                hint="Look at the log of the broker, then try again.",
            ) from None
        return self._decoded(body, answer)

    def _frame(self, request: RequestPayload) -> bytes:
        self._sent += 1
        header = request.__header_schema__(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=i32(self._sent),
            client_id=CLIENT,
        )
        buffer = io.BytesIO()
        entity_writer(type(header))(buffer, header)
        entity_writer(type(request))(buffer, request)
        return struct.pack(">i", buffer.tell()) + buffer.getvalue()

    def _decoded(self, body: bytes, answer: type[Answer]) -> Answer:
        (correlation_id,) = struct.unpack_from(">i", body)
        if correlation_id != self._sent:
            raise self._not_kafka("its answer belongs to another request")
        at = 5 if answer.__header_schema__.__flexible__ else 4  # behind the header's tags: none
        try:
            decoded = read_payload(answer, memoryview(body), at)
        except Malformed as error:
            raise self._not_kafka(f"its answer cannot be read: {error}") from None
        return decoded

    def _not_kafka(self, why: str) -> Unavailable:
        return Unavailable(
            f"what listens at {self.address} does not speak Kafka's protocol: {why}",
            hint="Check host and port. The port of `--http` is not the one for Kafka clients.",
        )


_SOFTWARE = "".join(each if each.isalnum() or each in ".-" else "-" for each in __version__)


@asynccontextmanager
async def connect(
    bootstrap: str = DEFAULT_BOOTSTRAP, *, timeout_s: float = TIMEOUT_S
) -> AsyncIterator[Connection]:
    """A connection to the broker at ``HOST:PORT``, which is closed in the end."""
    host, port = host_and_port(bootstrap)
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
    except (TimeoutError, OSError) as error:
        reason = os.strerror(error.errno) if error.errno else str(error) or "no answer"
        raise Unavailable(
            f"no broker can be reached at {bootstrap}: {reason}",
            hint="Start one with `stratalog serve --data DIR`, or name another: --bootstrap "
            "HOST:PORT.",
        ) from None
    try:
        connection = Connection(bootstrap, reader, writer, timeout_s)
        await connection.learn_versions()
        yield connection
    finally:
        writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await writer.wait_closed()
