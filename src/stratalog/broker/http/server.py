"""A very small HTTP/1.1 server: GET and HEAD of a few pages, each connection for one request.

It is for probes and scrapers, so everything is bounded: the head of a request in bytes and in
seconds, the answer in seconds, the connections in number. A body is not read. Whatever a client
sends, it gets an answer or is closed, and the pages of others are not held up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from stratalog.broker.options import Address
from stratalog.errors import Denied, Invalid, StratalogError, Unavailable

HEAD_BYTES_MAX = 8 * 1024
HEAD_S_MAX = 5.0
ANSWER_S_MAX = 10.0
REST_S_MAX = 1.0
REST_READS_MAX = 64
CONNECTIONS_MAX = 64

TEXT = "text/plain; charset=utf-8"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """What is answered: a status, and a body with its type."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    allow: str | None = None


Pages = Mapping[str, Callable[[], Page]]
"""What makes the page of each path, at the moment when it is asked for."""


class PageServer:
    """The pages of a broker on a port of their own."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        """Where it listens."""
        if self._address is None:
            raise Invalid("the HTTP server does not listen yet")
        return self._address

    async def listen(self, where: Address) -> None:
        """Begin to answer. Port 0 chooses a free one."""
        try:
            self._listening = await asyncio.start_server(
                self._accept, where.host, where.port, limit=HEAD_BYTES_MAX
            )
        except OSError as error:
            raise cannot_listen(where, "http", error) from None
        port = self._listening.sockets[0].getsockname()[1]
        self._address = Address(where.host, port)

    async def close(self) -> None:
        """Listen no more, and drop what is being answered."""
        if self._listening is not None:
            self._listening.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # for the transports, which close in the loop's next turn

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            page, with_body = await self._answer(reader)
            if page is not None:
                writer.write(encoded(page, with_body=with_body))
                async with asyncio.timeout(ANSWER_S_MAX):
                    await writer.drain()
                    writer.write_eof()
                    await _read_rest(reader)
                    writer.close()
                    await writer.wait_closed()
        except (OSError, TimeoutError):
            pass
        finally:
            with suppress(RuntimeError):
                writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[Page | None, bool]:
        """The page for what comes in, and whether its body is wanted. None: just close."""
        if len(self._tasks) > CONNECTIONS_MAX:
            return None, False
        try:
            async with asyncio.timeout(HEAD_S_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            return _failure(HTTPStatus.REQUEST_TIMEOUT), True
        except asyncio.LimitOverrunError:
            return _failure(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), True
        except asyncio.IncompleteReadError:
            return None, False
        asked = requested(head)
        if asked is None:
            return _failure(HTTPStatus.BAD_REQUEST), True
        method, path = asked
        return self._page(method, path), method != "HEAD"

    def _page(self, method: str, path: str) -> Page:
        make = self._pages.get(path)
        if make is None:
            return _failure(HTTPStatus.NOT_FOUND, f"There are: {', '.join(self._pages)}\n")
        if method not in ("GET", "HEAD"):
            status = HTTPStatus.METHOD_NOT_ALLOWED
            return Page(f"{status.phrase}\n".encode(), status=status, allow="GET, HEAD")
        try:
            return make()
        except Exception:
            _logger.exception("the page %s could not be made", path)
            return _failure(HTTPStatus.INTERNAL_SERVER_ERROR)


async def _read_rest(reader: asyncio.StreamReader) -> None:
    """Take in what a client still sends, up to a bound. Closing with unread bytes would reset the
    connection, and the client might never see its answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(REST_S_MAX):
            for _ in range(REST_READS_MAX):
                if not await reader.read(HEAD_BYTES_MAX):
                    return


def requested(head: bytes) -> tuple[str, str] | None:
    """The method and the path that the head of a request names, or None if it is malformed."""
    try:
        line = head.split(b"\r\n", 1)[0].decode("ascii")
    except UnicodeDecodeError:
        return None
    parts = line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
        return None
    return parts[0], parts[1].partition("?")[0]


def encoded(page: Page, *, with_body: bool) -> bytes:
    """An answer as it goes over the wire."""
    lines = [
        f"HTTP/1.1 {page.status.value} {page.status.phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if page.allow is not None:
        lines.append(f"Allow: {page.allow}")
    head = "".join(f"{line}\r\n" for line in lines).encode("ascii") + b"\r\n"
    return head + page.body if with_body else head


def cannot_listen(where: Address, option: str, error: OSError) -> StratalogError:
    """Why nobody can listen at an address that an option names."""
    message = f"cannot listen at {where}: {error.strerror or error}"
    hint = f"Choose another with --{option} HOST:PORT; port 0 is any free one."
    return (Denied if isinstance(error, PermissionError) else Unavailable)(message, hint=hint)


def _failure(status: HTTPStatus, more: str = "") -> Page:
    return Page(f"{status.phrase}\n{more}".encode(), status=status)
